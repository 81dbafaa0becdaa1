/** Fails if generated files differ from what their sources generate. */
import { execFileSync } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../..');
const KERNELS = path.join(ROOT, 'inference-node/kernels');
const ONNX = 'inference-node/serving/onnx';
const COMPILED = 'inference-node/serving/picture/kernels/kernels.wasm';
const fresh = mkdtempSync(path.join(tmpdir(), 'matting-generated-'));

function runNode(cwd: string, ...args: readonly string[]): void {
  const env = { ...process.env, PATH: `${ROOT}/node_modules/.bin:${process.env.PATH}` };
  execFileSync(process.execPath, args, { cwd, stdio: 'inherit', env });
}

function contents(root: string, pattern: string): Map<string, string> {
  const names = globSync(pattern, { cwd: root }).sort();
  return new Map(names.map(name => [name, readFileSync(path.join(root, name), 'utf8')]));
}

function differing(folder: string, made: string, pattern: string): string[] {
  const expected = contents(made, pattern);
  const committed = contents(path.join(ROOT, folder), pattern);
  const names = new Set([...expected.keys(), ...committed.keys()]);
  if (expected.size === 0) throw new Error('nothing was generated');
  return [...names]
    .filter(name => expected.get(name) !== committed.get(name))
    .map(name => `${folder}/${name}`);
}

function staleProto(): string[] {
  const buf = path.join(ROOT, 'node_modules/@bufbuild/buf/bin/buf');
  runNode(ROOT, buf, 'generate', '--output', fresh);
  runNode(ROOT, buf, 'generate', '--output', fresh, '--template', `${ONNX}/buf.gen.yaml`);
  return ['proto/gen', `${ONNX}/gen`].flatMap(folder =>
    differing(folder, path.join(fresh, folder), '**/*.ts'),
  );
}

function staleDashboards(): string[] {
  const made = path.join(fresh, 'grafana');
  mkdirSync(made);
  runNode(ROOT, path.join(ROOT, 'deploy/grafana/source/write.ts'), made);
  return differing('deploy/grafana', made, '*.json');
}

function staleDocuments(): string[] {
  const made = path.join(fresh, 'documents');
  mkdirSync(made);
  runNode(ROOT, path.join(ROOT, 'docs/source/write.ts'), made, made, made);
  return [
    ...differing('docs', made, 'settings.md'),
    ...differing('program', made, 'variable-names.json'),
    ...differing('client/src', made, 'finishing-fields.ts'),
  ];
}

function staleKernels(): string[] {
  const compiler = path.join(KERNELS, 'node_modules/assemblyscript/bin/asc.js');
  const outFile = path.join(fresh, 'kernels.wasm');
  runNode(KERNELS, compiler, '--config', 'asconfig.json', '--outFile', outFile);
  const same = readFileSync(outFile).equals(readFileSync(path.join(ROOT, COMPILED)));
  return same ? [] : [COMPILED];
}

try {
  const stale = [...staleProto(), ...staleKernels(), ...staleDashboards(), ...staleDocuments()];
  if (stale.length > 0) {
    console.error(`not current: ${stale.join(', ')}. Run: make generate`);
    process.exitCode = 1;
  }
} finally {
  rmSync(fresh, { recursive: true, force: true });
}
