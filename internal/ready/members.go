package ready

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// members calls each with the name and the value of every member of the JSON
// object, without copying them. The text is what Postgres returns for a jsonb
// object, or a state that package auditrows made, so the names that matter have
// no escapes. It panics on other text.
//
// Most of the cost of a fold is here: encoding/json takes five times as long.
func members(text []byte, each func(name, value []byte)) {
	at := skipSpace(text, 0)
	expect(text, at, '{')
	at = skipSpace(text, at+1)
	if text[at] == '}' {
		return
	}
	for {
		end := skipValue(text, at)
		name := text[at+1 : end-1]
		at = skipSpace(text, end)
		expect(text, at, ':')
		at = skipSpace(text, at+1)
		end = skipValue(text, at)
		each(name, text[at:end])
		at = skipSpace(text, end)
		if text[at] == '}' {
			return
		}
		expect(text, at, ',')
		at = skipSpace(text, at+1)
	}
}

func expect(text []byte, at int, c byte) {
	if text[at] != c {
		panic(fmt.Sprintf("%q at %d, want %q", text[at], at, c))
	}
}

func skipSpace(text []byte, at int) int {
	for text[at] == ' ' {
		at++
	}
	return at
}

// skipValue returns where the value that begins there ends.
func skipValue(text []byte, at int) int {
	switch text[at] {
	case '"':
		return skipString(text, at)
	case '{', '[':
		depth := 0
		for {
			switch text[at] {
			case '"':
				at = skipString(text, at)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			at++
			if depth == 0 {
				return at
			}
		}
	}
	for text[at] != ',' && text[at] != '}' && text[at] != ' ' {
		at++
	}
	return at
}

func skipString(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// textOf returns the string that the value is. known is returned without a copy
// if it is equal.
func textOf(value []byte, known string) string {
	if len(value) == len(known)+2 && string(value[1:len(value)-1]) == known {
		return known
	}
	if value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		panic(err)
	}
	return s
}

// integer returns the whole number that the value is.
func integer(value []byte) int64 {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
