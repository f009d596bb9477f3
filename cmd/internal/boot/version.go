package boot

import (
	"cmp"
	"runtime/debug"
)

// Version is the release that the programs belong to, set by the build: -ldflags "-X …/cmd/internal/boot.Version=1.2.3".
var Version string

// ThisVersion is Version, or what the Go command recorded: the module's version for a program made by go install, else (devel).
func ThisVersion() string {
	recorded := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		recorded = info.Main.Version
	}
	return cmp.Or(Version, recorded)
}
