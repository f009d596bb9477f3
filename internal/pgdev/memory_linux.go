package pgdev

import "syscall"

// memoryParent is a folder that the kernel keeps in memory.
const memoryParent = "/dev/shm"

// A run of all tests needs less than half of memoryMin.
const (
	memoryMin  = 4 << 30 // bytes
	tmpfsMagic = 0x01021994
)

const mayMake = 0x2 | 0x1 // W_OK | X_OK

// hasMemory reports whether the folder is in memory, has room for a server's
// data, and can be written by this process.
func hasMemory(folder string) bool {
	var stat syscall.Statfs_t
	if syscall.Statfs(folder, &stat) != nil || syscall.Access(folder, mayMake) != nil {
		return false
	}
	return stat.Type == tmpfsMagic && stat.Bavail*uint64(stat.Bsize) >= memoryMin
}
