package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

func TestChildrenOf(t *testing.T) {
	if _, err := cpuOf(os.Getpid()); err != nil {
		t.Log("this system does not list processes as Linux does")
		return
	}
	child := exec.CommandContext(t.Context(), "sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	found, err := childrenOf(os.Getpid())
	if err != nil || !slices.Contains(found, child.Process.Pid) {
		t.Errorf("the children are %v (%v), without %d", found, err, child.Process.Pid)
	}
	if found, err := childrenOf(child.Process.Pid); err != nil || len(found) > 0 {
		t.Errorf("the children of a program that starts none are %v (%v)", found, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
}
