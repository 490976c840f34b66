//go:build tools

// Imports h2spec, so that go.mod and go.sum pin it and its dependencies. `scripts/setup test` builds it here.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
