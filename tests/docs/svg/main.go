// Command svg draws docs/demo.svg, a picture of a terminal, from what the demo really printed:
//
//	bin/reprieve demo --once --dir /tmp/demo | go run ./tests/docs/svg > docs/demo.svg
package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
)

const (
	columns    = 104
	textWidth  = 874 // of that many characters at 14 px
	lineHeight = 19
	margin     = 20
	top        = 46
)

func main() {
	lines, err := excerpt(os.Stdin)
	if err == nil {
		_, err = io.WriteString(os.Stdout, draw(lines))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// excerpt keeps the titles, the commands and a few lines of each answer.
func excerpt(r io.Reader) ([]string, error) {
	out := []string{"$ make demo"}
	left := 0 // lines of the present answer that are still kept
	counting := false
	in := bufio.NewScanner(r)
	for in.Scan() {
		line := strings.ReplaceAll(in.Text(), "\u00a0", " ")
		trimmed := strings.TrimSpace(line)
		switch {
		case title.MatchString(line):
			out, left = append(out, "", line), 0
		case strings.HasPrefix(trimmed, "Each dead letter says"):
			out, left = append(out, line), 4
		case strings.Contains(line, "records in;"):
			out = append(out, line)
		case strings.HasPrefix(trimmed, "$ reprieve quarantine show"), strings.HasPrefix(trimmed, "$ reprieve check"):
			left = 0
		case strings.HasPrefix(trimmed, "$ reprieve"):
			out, left = append(out, line), 6
			if strings.Contains(line, "groups") {
				left = 5
			}
		case strings.HasPrefix(line, "Counted from the topics"):
			out, counting = append(out, "", line), true
		case counting && trimmed != "":
			out = append(out, line)
		case trimmed == "" || left == 0:
			if trimmed == "" && left > 0 {
				left = 0
			}
		default:
			out, left = append(out, line), left-1
		}
	}
	if len(out) < 30 || !counting {
		return nil, fmt.Errorf("this is not what the demo prints: %d lines kept", len(out))
	}
	return out, in.Err()
}

var title = regexp.MustCompile(`^\d+\. `)

// draw makes the picture. It brings its own background, so that it reads on a light and on a dark page, and holds neither
// scripts nor references.
func draw(lines []string) string {
	width, height := textWidth+2*margin, top+lineHeight*len(lines)+margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="t d">`+"\n", width, height, width, height)
	b.WriteString("<title id=\"t\">A terminal that shows make demo</title>\n" +
		"<desc id=\"d\">The demo writes 21,000 records, 50 of which fail, takes them into custody, repairs and redrives a group under an approval, and counts: none lost, none twice.</desc>\n")
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="10" fill="#161b22" stroke="#6e7681"/>`+"\n", width-1, height-1)
	for i, c := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="20" r="6" fill="%s"/>`+"\n", 22+20*i, c)
	}
	b.WriteString(`<g font-family="monospace" font-size="14">` + "\n")
	for i, line := range lines {
		if line == "" {
			continue
		}
		text := []rune(line)
		if len(text) > columns {
			text = append(text[:columns-1], '…')
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" xml:space="preserve">%s</text>`+"\n", margin, top+lineHeight*i+10, colour(line), html.EscapeString(string(text)))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

func colour(line string) string {
	trimmed := strings.TrimSpace(line)
	switch {
	case title.MatchString(line), strings.HasPrefix(line, "Counted"):
		return "#79c0ff"
	case strings.HasPrefix(trimmed, "$ "):
		return "#f0f6fc"
	case strings.HasPrefix(trimmed, "lost"), strings.HasPrefix(trimmed, "duplicates"), strings.Contains(line, "DONE"), strings.HasPrefix(trimmed, "approved by"):
		return "#7ee787"
	case strings.Contains(line, "ERR_"):
		return "#ffa198"
	}
	return "#c9d1d9"
}
