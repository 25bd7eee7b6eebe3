package overlay

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// EnvEdit names the edit that a process built by Build runs with, counted from 1. Without it, or at
// 0, nothing is broken.
const EnvEdit = "TENURE_EDIT"

// Edit replaces a piece of a file of this repository, given by offsets. File is as in Write.
type Edit struct {
	File     string
	From, To int
	Text     string
}

// Replace is the edit that replaces a text of a file. It must be in the file once.
func Replace(file, source, old, text string) (Edit, error) {
	if count := strings.Count(source, old); count != 1 {
		return Edit{}, fmt.Errorf("%s has the text to be broken %d times: %q", file, count, old)
	}
	at := strings.Index(source, old)
	return Edit{file, at, at + len(old), text}, nil
}

// Apply gives the source with the edit in it.
func (e Edit) Apply(source string) string { return source[:e.From] + e.Text + source[e.To:] }

// Build compiles the tests of packages, each once, with edits in them: EnvEdit chooses which
// function goes wrong in a process. An edit within the body of a function is a second copy of that
// function, called in its place. alone says of each edit that it is not in the binaries: it is
// none of a body, or no program, and wants a build of its own.
func Build(dir string, edits []Edit, packages []string) (binaries map[string]string, alone []bool, err error) {
	alone = make([]bool, len(edits))
	for {
		laid, err := lay(dir, edits, alone)
		if err != nil {
			return nil, nil, err
		}
		wrong := 0
		binaries = map[string]string{}
		for i, in := range packages {
			binaries[in] = filepath.Join(dir, fmt.Sprintf("whole-%d.test", i))
			err = Compile(in, binaries[in], "-overlay", laid)
			if err == nil {
				continue
			}
			for _, found := range named.FindAllStringSubmatch(err.Error(), -1) {
				if i, _ := strconv.Atoi(found[1]); i > 0 && i <= len(edits) && !alone[i-1] {
					alone[i-1] = true
					wrong++
				}
			}
			break
		}
		if err == nil || wrong == 0 {
			return binaries, alone, err
		}
	}
}

// named finds the edits in the errors of the compiler: the copy of edit 7 pretends to be a file of
// the name edit7.
var named = regexp.MustCompile(`\bedit(\d+):\d+`)

// lay writes the sources with all edits in them that are not alone, or turn out to be, and the
// overlay.
func lay(dir string, edits []Edit, alone []bool) (overlay string, err error) {
	l, err := newLayer(dir)
	if err != nil {
		return "", err
	}
	of := map[string][]int{}
	for i, e := range edits {
		if strings.HasSuffix(e.File, ".go") {
			of[e.File] = append(of[e.File], i)
		} else {
			alone[i] = true
		}
	}
	packages := map[string]string{}
	for file, members := range of {
		source, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			return "", err
		}
		text, name, err := switched(string(source), edits, members, alone)
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		if err := l.write(filepath.FromSlash(file), text); err != nil {
			return "", err
		}
		packages[filepath.Dir(filepath.FromSlash(file))] = name
	}
	for folder, name := range packages {
		text := fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar overlayEdit, _ = strconv.Atoi(os.Getenv(%q))\n", name, EnvEdit)
		if err := l.write(filepath.Join(folder, "overlay_edit.go"), text); err != nil {
			return "", err
		}
	}
	return l.finish()
}

// switched gives the source of a file with those of its edits in it that can be switched, and the
// name of its package.
func switched(source string, edits []Edit, members []int, alone []bool) (text, name string, err error) {
	file, functions, err := bodies(source)
	if err != nil {
		return "", "", err
	}
	type insertion struct {
		at   int
		text string
	}
	var calls []insertion
	var copies strings.Builder
	for _, i := range members {
		if alone[i] {
			continue
		}
		e := edits[i]
		broken := e.Apply(source)
		_, others, err := bodies(broken)
		whole, ok := around(functions, e.From, e.To)
		other, otherToo := around(others, e.From, e.From+len(e.Text))
		call, callable := whole.call(fmt.Sprint("edit", i+1, "_"))
		if alone[i] = err != nil || !ok || !otherToo || !callable; alone[i] {
			continue
		}
		calls = append(calls, insertion{whole.body + 1, fmt.Sprintf(" if overlayEdit == %d { %s };", i+1, call)})
		fmt.Fprintf(&copies, "\n//line edit%d:1\n%sedit%d_%s\n", i+1, broken[other.begin:other.name], i+1, broken[other.name:other.end])
	}
	slices.SortStableFunc(calls, func(a, b insertion) int { return b.at - a.at })
	text = source
	for _, c := range calls {
		text = text[:c.at] + c.text + text[c.at:]
	}
	return text + copies.String(), file.Name.Name, nil
}

// function is a declaration by its offsets: where it begins, its name, its body and its end.
type function struct {
	*ast.FuncDecl
	begin, name, body, end int
}

func bodies(source string) (*ast.File, []function, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	var all []function
	offset := func(at token.Pos) int { return files.Position(at).Offset }
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			all = append(all, function{f, offset(f.Type.Func), offset(f.Name.Pos()), offset(f.Body.Lbrace), offset(f.End())})
		}
	}
	return file, all, nil
}

// around finds the function whose body has all of this text.
func around(functions []function, from, to int) (function, bool) {
	for _, f := range functions {
		if f.body < from && to < f.end {
			return f, true
		}
	}
	return function{}, false
}

// call gives the statements that call the copy of a function in its place; not if something of it
// has no name to be passed on by.
func (f function) call(prefix string) (text string, ok bool) {
	if f.FuncDecl == nil || f.Type.TypeParams != nil || f.Name.Name == "init" {
		return "", false
	}
	text = prefix + f.Name.Name
	if f.Recv != nil {
		if len(f.Recv.List[0].Names) == 0 || f.Recv.List[0].Names[0].Name == "_" {
			return "", false
		}
		text = f.Recv.List[0].Names[0].Name + "." + text
	}
	var arguments []string
	for _, field := range f.Type.Params.List {
		if len(field.Names) == 0 {
			return "", false
		}
		for _, name := range field.Names {
			if name.Name == "_" {
				return "", false
			}
			argument := name.Name
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				argument += "..."
			}
			arguments = append(arguments, argument)
		}
	}
	text += "(" + strings.Join(arguments, ", ") + ")"
	if f.Type.Results != nil {
		return "return " + text, true
	}
	return text + "; return", true
}
