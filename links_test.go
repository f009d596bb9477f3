package holdfast_test

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// TestLinks checks every link of every document to a file of the repository,
// and to a heading of a document.
func TestLinks(t *testing.T) {
	t.Parallel()
	documents := map[string]document{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "node_modules", "bin"}, entry.Name()):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		documents[path] = parseDocument(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) < 20 {
		t.Fatalf("only %d documents", len(documents))
	}
	links := 0
	for path, d := range documents {
		for _, link := range d.links {
			links++
			if problem := checkLink(documents, path, link); problem != "" {
				t.Errorf("%s links to %s: %s", path, link, problem)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links", links)
	}
}

// TestLinkCheck gives the check links that it must refuse.
func TestLinkCheck(t *testing.T) {
	t.Parallel()
	documents := map[string]document{
		"docs/a.md": parseDocument("# The `first` part\n\n[x](b.md#two) [line\nbreak](#one)\n```\n# no heading [x](no.md)\n```\n`[y](no.md)`\n\nOne\n===\n"),
		"docs/b.md": parseDocument("## Two\n## Two\n### A [link](a.md), and more_of it!\n"),
	}
	if got := documents["docs/a.md"].links; !slices.Equal(got, []string{"b.md#two", "#one"}) {
		t.Errorf("links %q", got)
	}
	for link, want := range map[string]bool{
		"b.md#two": true, "b.md#two-1": true, "b.md#two-2": false, "b.md#Two": false, "#the-first-part": true, "#no-heading-x": false, "b.md#a-link-and-more_of-it": true,
		"https://example.org/#none": true, "mailto:a@b.example": true, "http.md": true, "../README.md": true, "../docs": true, "none.md": false,
	} {
		if problem := checkLink(documents, "docs/a.md", link); (problem == "") != want {
			t.Errorf("%s: %q", link, problem)
		}
	}
}

// document is what a document links to, and its anchors.
type document struct {
	links, anchors []string
}

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)|(?m:^\[[^\]]+\]: (\S+))`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	heading    = regexp.MustCompile(`^#{1,6} +(.*)$`)
)

// parseDocument reads a document, without its code.
func parseDocument(text string) (d document) {
	var prose strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if fence := strings.TrimSpace(line); strings.HasPrefix(fence, "```") || strings.HasPrefix(fence, "~~~") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		if found := heading.FindStringSubmatch(line); found != nil {
			d.anchors = append(d.anchors, d.anchor(found[1]))
		}
		prose.WriteString(line + "\n")
	}
	for _, found := range linkTarget.FindAllStringSubmatch(inlineCode.ReplaceAllString(prose.String(), ""), -1) {
		d.links = append(d.links, found[1]+found[2])
	}
	return d
}

// anchor returns the anchor that GitHub gives a heading.
func (d *document) anchor(text string) string {
	text = linkText.ReplaceAllString(text, "$1")
	slug := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(text))
	same := 0
	for name := slug; slices.Contains(d.anchors, slug); slug = name + "-" + strconv.Itoa(same) {
		same++
	}
	return slug
}

// checkLink returns what is wrong with a link of the document at path, "" for
// nothing. Links to other sites are not checked.
func checkLink(documents map[string]document, path, link string) (problem string) {
	u, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}
	target := path
	if u.Path != "" {
		target = filepath.Join(filepath.Dir(path), u.Path)
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) && documents[target].anchors == nil {
			return "there is no such file"
		}
	}
	if d, ok := documents[target]; ok && u.Fragment != "" && !slices.Contains(d.anchors, u.Fragment) {
		return "the document has no such heading"
	}
	return ""
}
