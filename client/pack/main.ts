/**
 * Builds client.tgz into client/build: JavaScript and types for `import` and `require`. The
 * workspace has no version, so that npm cannot pack it unbuilt; the built package gets the
 * project's version.
 *   main.ts [folder of a client below its project; default: its own]
 */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const OWN = path.resolve(import.meta.dirname, '..');
const INSTALLED = path.resolve(OWN, '../node_modules');
const client = path.resolve(process.argv[2] ?? OWN);
const build = path.join(client, 'build');
const made = path.join(build, 'package');

const read = (file: string) => JSON.parse(readFileSync(path.join(client, file), 'utf8'));

/** @throws Error with the program's output */
function run(program: string, ...args: string[]): void {
  const { status, error, output } = spawnSync(program, args, { cwd: client, encoding: 'utf8' });
  if (status === 0) return;
  throw new Error(`the client cannot be packed: ${error ?? output.join('')}`);
}

function compile(project: string, folder: string): void {
  const compiler = path.join(INSTALLED, 'typescript/bin/tsc');
  const types = ['--typeRoots', path.join(INSTALLED, '@types')];
  run(process.execPath, compiler, '-p', project, '--outDir', path.join(made, folder), ...types);
}

rmSync(build, { recursive: true, force: true });
mkdirSync(made, { recursive: true });
compile('tsconfig.json', 'dist');
compile('tsconfig.require.json', 'dist/require');
writeFileSync(path.join(made, 'dist/require/package.json'), '{"type":"commonjs"}\n');
const { private: _, scripts, devDependencies, exports, ...manifest } = read('package.json');
const { './src/*': _sources, ...given } = exports;
const { version } = read('../package.json');
const text = JSON.stringify({ ...manifest, version, exports: given }, undefined, 2);
writeFileSync(path.join(made, 'package.json'), `${text}\n`);
for (const name of ['README.md', 'LICENSE']) {
  cpSync(path.join(client, name), path.join(made, name));
}
run('npm', 'pack', made, `--pack-destination=${build}`, '--ignore-scripts', '--loglevel=error');
renameSync(path.join(build, `${manifest.name}-${version}.tgz`), path.join(build, 'client.tgz'));
