package custody

import (
	"regexp"
	"strings"

	"reprieve.dev/pipeline/deadletter"
)

// cause is what tells somebody else's failure from others: the class of the exception, what is left of its message when all that differs
// from record to record is blanked, and, for a defect of the program or when there is no message, where it happened. The class is that of
// the innermost exception of the stack, if the stack names one: wrappers are alike whatever is wrong. Line numbers, paths, releases and
// the names that compilers make up are in none of them.
func cause(l *deadletter.Letter) (class, message, place string) {
	class, message = l.Exception, l.Reason
	stack := l.Stack
	if i := strings.LastIndex(stack, "Caused by: "); i >= 0 {
		stack = stack[i+len("Caused by: "):]
		first, _, _ := strings.Cut(stack, "\n")
		inner, said, _ := strings.Cut(first, ": ")
		class, message = strings.TrimSpace(inner), said
	}
	message = rest(message)
	if message == "" || defect.MatchString(class) || strings.HasPrefix(message, "runtime error") {
		place = framed(stack)
	}
	return class, message, place
}

// defect are exceptions that say what a program did wrong but not where: a message of theirs fits many causes.
var defect = regexp.MustCompile(`(?:^|[.:])(?:NullPointerException|(?:Array|String)?IndexOutOfBoundsException|ClassCastException|ArithmeticException|` +
	`NullReferenceException|IndexOutOfRangeException|InvalidCastException|StackOverflowError|AssertionError|` +
	`TypeError|AttributeError|KeyError|IndexError|NameError|UnboundLocalError|ZeroDivisionError|ReferenceError|RangeError|RecursionError)$`)

var (
	atFrame     = regexp.MustCompile(`(?m)^\s*at (?:async |new )?(?:[\w.]+/)?([^\s(]+)\s*\(`) // Java, .NET, Node
	pythonFrame = regexp.MustCompile(`(?m)^\s*File "(?:[^"]*[/\\])?([^"/\\]+)", line \d+, in (\S+)`)
	goFrame     = regexp.MustCompile(`(?m)^([\w./*()\[\]-]+)\([^()]*\)\n\t`)
	madeUp      = regexp.MustCompile(`[$_<>]*\d+`)
	foreignCode = regexp.MustCompile(`^(?:java|javax|jdk|sun|com\.sun|kotlin|scala|clojure|org\.springframework|org\.apache|System|Microsoft|node:|process\.|runtime\.|panic$|Object\.|Array\.)`)
)

// framed is the function that failed: the innermost frame of the program itself, else the innermost.
func framed(stack string) string {
	var frames []string
	for _, m := range atFrame.FindAllStringSubmatch(stack, -1) {
		frames = append(frames, m[1])
	}
	if len(frames) == 0 {
		all := pythonFrame.FindAllStringSubmatch(stack, -1)
		for i := len(all) - 1; i >= 0; i-- { // the innermost is the last
			frames = append(frames, all[i][1]+" "+all[i][2])
		}
	}
	if len(frames) == 0 {
		for _, m := range goFrame.FindAllStringSubmatch(stack, -1) {
			frames = append(frames, m[1])
		}
	}
	for _, f := range frames {
		if !foreignCode.MatchString(f) {
			return madeUp.ReplaceAllString(f, "")
		}
	}
	if len(frames) > 0 {
		return madeUp.ReplaceAllString(frames[0], "")
	}
	return ""
}
