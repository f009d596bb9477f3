package main

import "context"

const serveCommand = "serve"

func serve(_ context.Context, _ []string) error { return nil }
