package overlay

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// EnvEdit names the edit that a process built with Switch runs with, counted from 1. Without it, or at 0, nothing is broken.
const EnvEdit = "TENURE_EDIT"

// Edit replaces a text of a file of this repository, which is in it once. File is as in Write.
type Edit struct{ File, Old, New string }

// Apply gives the source with the edit in it, and the offset at which it begins.
func (e Edit) Apply(source string) (broken string, at int, err error) {
	if count := strings.Count(source, e.Old); count != 1 {
		return "", 0, fmt.Errorf("%s has the text to be broken %d times: %q", e.File, count, e.Old)
	}
	at = strings.Index(source, e.Old)
	return source[:at] + e.New + source[at+len(e.Old):], at, nil
}

// Switch writes sources that have many edits in them, and the overlay that makes the go command take them: one build then stands for
// all of them, and EnvEdit chooses which function goes wrong in a process. An edit within the body of a function is a second copy of
// that function, called in its place. alone tells of each edit that it cannot be had so: it wants a build of its own.
func Switch(dir string, edits []Edit) (overlay string, alone []bool, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	replace := map[string]string{}
	lay := func(path, text string) error {
		broken := filepath.Join(dir, strconv.Itoa(len(replace))+"_"+filepath.Base(path))
		replace[filepath.Join(root, path)] = broken
		return os.WriteFile(broken, []byte(text), 0o644)
	}
	alone = make([]bool, len(edits))
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
			return "", nil, err
		}
		text, name, err := switched(string(source), edits, members, alone)
		if err != nil {
			return "", nil, err
		}
		if err := lay(filepath.FromSlash(file), text); err != nil {
			return "", nil, err
		}
		packages[filepath.Dir(filepath.FromSlash(file))] = name
	}
	for folder, name := range packages {
		text := fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar overlayEdit, _ = strconv.Atoi(os.Getenv(%q))\n", name, EnvEdit)
		if err := lay(filepath.Join(folder, "overlay_edit.go"), text); err != nil {
			return "", nil, err
		}
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, alone, os.WriteFile(overlay, text, 0o644)
}

// switched gives the source of a file with those of its edits in it that can be switched, and the name of its package.
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
		broken, at, err := edits[i].Apply(source)
		if err != nil {
			return "", "", err
		}
		_, others, err := bodies(broken)
		if err != nil {
			return "", "", fmt.Errorf("%s: %q: %w", edits[i].File, edits[i].New, err)
		}
		whole, ok := around(functions, at, at+len(edits[i].Old))
		other, otherToo := around(others, at, at+len(edits[i].New))
		call, callable := whole.call(fmt.Sprint("edit", i+1, "_"))
		if alone[i] = !ok || !otherToo || !callable; alone[i] {
			continue
		}
		calls = append(calls, insertion{whole.body + 1, fmt.Sprintf(" if overlayEdit == %d { %s };", i+1, call)})
		fmt.Fprintf(&copies, "\n%sedit%d_%s\n", broken[other.begin:other.name], i+1, broken[other.name:other.end])
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

// call gives the statements that call the copy of a function in its place; not if something of it has no name to be passed on by.
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
