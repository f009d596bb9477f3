package boot

import "testing"

func TestPasses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sweep", "drain", "recover", "purge", "verify", "migrate"} {
		if pass := PassNamed(name); pass == nil || pass.Once == nil {
			t.Errorf("%s is %+v", name, pass)
		}
	}
	if len(Passes) != 6 || PassNamed("sweeps") != nil {
		t.Errorf("there are %d passes: %s", len(Passes), PassNames())
	}
}
