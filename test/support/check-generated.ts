/** Fails when proto/gen is not what the .proto files generate: makes it again beside and compares. */
import { execFileSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../..');
const fresh = mkdtempSync(path.join(tmpdir(), 'matting-generated-'));

function contents(root: string): Map<string, string> {
  const names = globSync('**/*.ts', { cwd: root }).sort();
  return new Map(names.map(name => [name, readFileSync(path.join(root, name), 'utf8')]));
}

try {
  execFileSync(
    process.execPath,
    [path.join(ROOT, 'node_modules/@bufbuild/buf/bin/buf'), 'generate', '--output', fresh],
    {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ...process.env, PATH: `${ROOT}/node_modules/.bin:${process.env.PATH}` },
    },
  );
  const expected = contents(path.join(fresh, 'proto/gen'));
  const committed = contents(path.join(ROOT, 'proto/gen'));
  const names = new Set([...expected.keys(), ...committed.keys()]);
  const stale = [...names].filter(name => expected.get(name) !== committed.get(name));
  if (expected.size === 0) throw new Error('nothing was generated');
  if (stale.length > 0) {
    console.error(`proto/gen is not current: ${stale.join(', ')}. Run: make generate`);
    process.exitCode = 1;
  }
} finally {
  rmSync(fresh, { recursive: true, force: true });
}
