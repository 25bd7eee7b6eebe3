package browsertest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManyRoles: of many roles those that nobody leads come first, so that nobody has to scroll to
// them. Few stay in their order.
func TestManyRoles(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for i := range 40 {
		s.lead(fmt.Sprintf("r%02d", i), 30, map[bool]float64{true: 0, false: 20}[i == 31], "web-1 1 0")
	}
	const bands = "[...document.querySelectorAll('#roles .role')].map((e) => e.textContent).join(' ')"
	p := open(t, s.url, desk)
	p.says("#roles", "Nobody leads r31")
	require.Regexp(t, `^r31 r00 r01 .* r30 r32 .* r39$`, eval[string](p, bands))
	s.change(func() { s.roles[31]["leader"] = s.roles[30]["leader"] })
	p.until("document.title === 'shop · led · tenure'")
	require.Regexp(t, `^r00 r01 .* r30 r31 r32 .* r39$`, eval[string](p, bands))
	s.change(func() { s.roles = s.roles[28:32]; s.roles[3]["leader"] = nil })
	p.until("document.querySelectorAll('#roles .role').length === 4")
	require.Equal(t, "r28 r29 r30 r31", eval[string](p, bands))
	p.clean()
}

// TestManyTerms: what an answer costs the page does not grow with the square of the roles.
func TestManyTerms(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const roles, terms = 200, 10
	for i := range roles {
		var leaders []string
		for j := range terms {
			leaders = append(leaders, fmt.Sprintf("web-%d %d 0", j, terms-j))
		}
		s.lead(fmt.Sprintf("r%03d", i), 30, 20, leaders...)
	}
	p := open(t, s.url, desk)
	p.says("#roles", "web-9 leads")
	eval[bool](p, `{
		window.costs = [];
		let [parsed, written] = [0, 0];
		const [parse, json] = [Date.parse, Response.prototype.json];
		const format = Object.getOwnPropertyDescriptor(Intl.DateTimeFormat.prototype, "format");
		Date.parse = (text) => { parsed++; return parse(text); };
		Object.defineProperty(Intl.DateTimeFormat.prototype, "format", { ...format, get() { written++; return format.get.call(this); } });
		Response.prototype.json = async function () {
			const answer = await json.call(this);
			const before = [parsed, written];
			setTimeout(() => window.costs.push([parsed - before[0], written - before[1]]));
			return answer;
		};
	} true`)
	p.until("window.costs.length >= 2")
	cost := eval[[]int](p, "window.costs.at(-1)")
	require.Less(t, cost[0], 20*roles*terms, "times that are read of one answer")
	require.Less(t, cost[1], 2*roles*terms, "times that are written for it: those of terms that are over stay")
	t.Log(cost)
	p.clean()
}
