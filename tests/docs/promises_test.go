package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var heldBy = regexp.MustCompile("`[^`]+`|\\S+")

// The page of promises names tests. Each of them is there, in the package that the page names.
func TestEveryPromiseIsHeldByATest(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "promises.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{} // the tests of a package
	tests := func(pkg string) string {
		if _, known := sources[pkg]; !known {
			files, _ := filepath.Glob(filepath.Join(root, pkg, "*_test.go")) // the pattern is ours
			all := ""
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				all += string(text)
			}
			sources[pkg] = all
		}
		return sources[pkg]
	}
	promises, named := 0, 0
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 2 || cells[0] == "promise" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		promises++
		pkg, here := "", 0
		for _, word := range heldBy.FindAllString(cells[1], -1) {
			switch {
			case word[0] == '`':
				pkg = strings.Trim(word, "`")
				if tests(pkg) == "" {
					t.Errorf("%s: %s has no tests", cells[0], pkg)
				}
				continue
			case strings.HasSuffix(word, ".txtar"):
				if _, err := os.Stat(filepath.Join(root, pkg, "testdata", "script", word)); err != nil {
					t.Errorf("%s: there is no script %s", cells[0], word)
				}
			case !strings.Contains(tests(pkg), "\nfunc "+word+"("):
				t.Errorf("%s: there is no test %s in %s", cells[0], word, pkg)
			}
			here++
		}
		if here == 0 {
			t.Errorf("%s: nothing holds it", cells[0])
		}
		named += here
	}
	if promises < 40 || named < 2*promises {
		t.Errorf("%d promises and %d tests were found: the page was not read", promises, named)
	}
}
