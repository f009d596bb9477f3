package stage

import (
	"bytes"
	"io"
)

// splitter collects pieces until a line is complete. The zero value is ready
// for use. It is not safe for concurrent use.
type splitter struct{ rest []byte }

// write copies the piece to the writer, unless that is nil. It calls add with
// each line that is complete now, without its newline. A failure to copy is
// ignored, so that a full disk does not end the storm. It returns the length of
// the piece.
func (s *splitter) write(to io.Writer, p []byte, add func(line string)) int {
	if to != nil {
		_, _ = to.Write(p)
	}
	s.rest = append(s.rest, p...)
	for {
		end := bytes.IndexByte(s.rest, '\n')
		if end < 0 {
			return len(p)
		}
		add(string(s.rest[:end]))
		s.rest = s.rest[end+1:]
	}
}
