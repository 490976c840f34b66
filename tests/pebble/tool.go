//go:build tools

// Imports pebble, so that go.mod and go.sum pin it and its dependencies. `scripts/setup test` builds it here.
package tools

import _ "github.com/letsencrypt/pebble/v2/cmd/pebble"
