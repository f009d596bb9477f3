package main

import (
	"os"
	"syscall"
)

// confinements are the ways to run a program in another root as the image's
// user. One needs root, the other works for any user.
func confinements(root string) []confinement {
	mapped := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: userID, HostID: id, Size: 1}}
	}
	return []confinement{
		{"a chroot", &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: userID, Gid: userID}}},
		{"a chroot in a user namespace", &syscall.SysProcAttr{
			Chroot: root, Cloneflags: syscall.CLONE_NEWUSER, UidMappings: mapped(os.Getuid()), GidMappings: mapped(os.Getgid()),
		}},
	}
}
