/**
 * The house rules that a machine can hold: who may import whom, who may read the environment or end
 * the process, and what a file may look like. Each rule names the offending place.
 */
import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { MATTING_VARIABLES } from '#program/env-names.ts';

const ROOT = path.resolve(import.meta.dirname, '..');

interface SourceFile {
  /** Relative to the root, with forward slashes. */
  readonly name: string;
  readonly text: string;
  /** What it imports: packages as written, project files as paths relative to the root. */
  readonly imports: readonly string[];
}

const IMPORT =
  /(?:^|\n)\s*(?:import|export)\b[^'";]*?from\s*'([^']+)'|import\(\s*'([^']+)'\s*\)|(?:^|\n)import\s*'([^']+)'/g;

function resolveImport(from: string, specifier: string): string {
  if (specifier.startsWith('#gen/')) return specifier.replace('#gen/', 'proto/gen/');
  if (specifier.startsWith('#contract/')) return specifier.replace('#contract/', 'proto/contract/');
  if (specifier.startsWith('#program/')) return specifier.replace('#program/', 'program/');
  if (!specifier.startsWith('.')) return specifier;
  return path.posix.normalize(path.posix.join(path.posix.dirname(from), specifier));
}

function readSources(): SourceFile[] {
  const names = globSync('{proto,program,control-plane,inference-node,bin,bench,test}/**/*.ts', {
    cwd: ROOT,
    exclude: ['**/node_modules/**', 'proto/gen/**'],
  });
  return names.sort().map(raw => {
    const name = raw.split(path.sep).join('/');
    const text = readFileSync(path.join(ROOT, raw), 'utf8');
    const imports = [...text.matchAll(IMPORT)].map(match =>
      resolveImport(name, match[1] ?? match[2] ?? match[3]),
    );
    return { name, text, imports };
  });
}

const sources = readSources();
const programs = sources.filter(
  file => !/(^|\/)test\//.test(file.name) && !file.name.startsWith('bench/'),
);

/** AssemblyScript: no program of Node's, and never imported by one. */
const KERNELS = /^inference-node\/kernels\//;

/** Offenders of `only`: files outside it that import what matches. */
function importersOutside(what: RegExp, only: RegExp): string[] {
  return programs
    .filter(file => !only.test(file.name))
    .flatMap(file =>
      file.imports.filter(name => what.test(name)).map(name => `${file.name} -> ${name}`),
    );
}

test('the sources were found', () => {
  assert.ok(programs.some(file => file.name === 'control-plane/src/main.ts'));
  assert.ok(programs.some(file => file.name === 'inference-node/src/main.ts'));
  assert.ok(programs.every(file => !file.name.includes('node_modules')));
});

test('the two programs and bin never import each other', () => {
  assert.deepEqual(importersOutside(/^control-plane\//, /^control-plane\//), []);
  assert.deepEqual(importersOutside(/^inference-node\//, /^inference-node\//), []);
  assert.deepEqual(importersOutside(/^bin\//, /^bin\//), []);
});

test('proto imports no other room of the house, program imports proto alone', () => {
  const offenders = (from: RegExp, to: RegExp) =>
    programs
      .filter(file => from.test(file.name))
      .flatMap(file => file.imports.filter(name => to.test(name)));
  assert.deepEqual(offenders(/^proto\//, /^(program|control-plane|inference-node|bin)\//), []);
  assert.deepEqual(offenders(/^program\//, /^(control-plane|inference-node|bin)\//), []);
});

test('libraries of one room stay in it', () => {
  assert.deepEqual(
    importersOutside(/^(kysely|mysql2|node:sqlite)/, /^control-plane\/src\/store\//),
    [],
  );
  assert.deepEqual(importersOutside(/^onnxruntime-node/, /^inference-node\/src\/engine\//), []);
  assert.deepEqual(importersOutside(/^(sharp|wasm-vips)/, /^inference-node\/src\/picture\//), []);
  assert.deepEqual(importersOutside(/^(fastify|@fastify\/)/, /^control-plane\/src\/http\//), []);
  assert.deepEqual(importersOutside(/^undici/, /^control-plane\/src\/sources\//), []);
  assert.deepEqual(
    importersOutside(/^(pacote|tar|@npmcli\/)/, /^inference-node\/src\/models\//),
    [],
  );
});

test('onnxruntime-node has one importer', () => {
  const importers = programs.filter(file => file.imports.includes('onnxruntime-node'));
  assert.equal(importers.length, 1, importers.map(file => file.name).join(', '));
});

test('domain imports only itself and the contract', () => {
  const offenders = programs
    .filter(file => file.name.startsWith('control-plane/src/domain/'))
    .flatMap(file =>
      file.imports
        .filter(name => !/^(control-plane\/src\/domain|proto\/contract)\//.test(name))
        .map(name => `${file.name} -> ${name}`),
    );
  assert.deepEqual(offenders, []);
});

test('http knows services, not the store or the nodes', () => {
  const offenders = programs
    .filter(file => file.name.startsWith('control-plane/src/http/'))
    .flatMap(file =>
      file.imports
        .filter(name => /^control-plane\/src\/(store|nodes)\//.test(name))
        .map(name => `${file.name} -> ${name}`),
    );
  assert.deepEqual(offenders, []);
});

test('services know no http, store and nodes know no services', () => {
  const bad = (room: RegExp, target: RegExp) =>
    programs
      .filter(file => room.test(file.name))
      .flatMap(file =>
        file.imports.filter(name => target.test(name)).map(name => `${file.name} -> ${name}`),
      );
  assert.deepEqual(bad(/^control-plane\/src\/services\//, /^control-plane\/src\/http\//), []);
  assert.deepEqual(
    bad(
      /^control-plane\/src\/(store|nodes|storage|sources)\//,
      /^control-plane\/src\/(services|http)\//,
    ),
    [],
  );
  assert.deepEqual(
    bad(/^inference-node\/src\/(engine|picture|models)\//, /^inference-node\/src\/grpc\//),
    [],
  );
  assert.deepEqual(bad(/^inference-node\/src\/pipeline\.ts/, /^@grpc|\/grpc\//), []);
});

test('in picture/ the worker alone uses codecs and mattes, and arrows run down', () => {
  const room = 'inference-node/src/picture';
  const arrows = (from: string, to: string) => {
    const [source, target] = [new RegExp(`^${from}`), new RegExp(`^${to}`)];
    return programs
      .filter(file => source.test(file.name) && !target.test(file.name))
      .flatMap(file =>
        file.imports.filter(name => target.test(name)).map(name => `${file.name} -> ${name}`),
      );
  };
  // `models check` takes one picture through the worker's stages in its own process.
  const mayUsePixels = `(${room}/(worker|codecs|matte)/|inference-node/src/cli/models-check\\.ts$)`;
  assert.deepEqual(arrows(`(?!${mayUsePixels})`, `${room}/(worker|codecs|matte)/`), []);
  assert.deepEqual(arrows(`${room}/[^/]+$`, `${room}/[^/]+/`), []);
  assert.deepEqual(arrows(`${room}/codecs/`, `${room}/(pool|worker|matte)/`), []);
  assert.deepEqual(arrows(`${room}/matte/`, `${room}/(pool|worker|codecs)/`), []);
  assert.deepEqual(arrows(`${room}/worker/`, `${room}/pool/`), []);
  assert.deepEqual(arrows(`${room}/codecs/(colour|files)/`, `${room}/codecs/[^/]+$`), []);
  assert.deepEqual(arrows(`${room}/codecs/colour/`, `${room}/codecs/files/`), []);
});

test('only config.ts reads the environment', () => {
  const offenders = programs
    .filter(file => !/(^|\/)config\.ts$/.test(file.name))
    .filter(file => /process\.env\b/.test(file.text))
    .map(file => file.name);
  assert.deepEqual(offenders, []);
});

/** The programs' entries, and the child's side of a process pair, which ends with its parent. */
const MAY_END_THE_PROCESS = [
  /(^|\/)main\.ts$/,
  /^bin\/matting\.ts$/,
  /^inference-node\/src\/process\/serve-parent\.ts$/,
  /^inference-node\/src\/engine\/child\/engine-child\.ts$/,
  /^inference-node\/src\/picture\/worker\/picture-worker\.ts$/,
];

test('only entries end the process or handle signals', () => {
  const offenders = programs
    .filter(file => !MAY_END_THE_PROCESS.some(entry => entry.test(file.name)))
    .filter(file => /process\.exit\(|process\.(on|once)\(\s*'SIG/.test(file.text))
    .map(file => file.name);
  assert.deepEqual(offenders, []);
});

test('no file is called after nothing', () => {
  const offenders = sources
    .filter(file => /(^|\/)(utils?|helpers?|managers?|common|misc)(\.ts$|\/)/.test(file.name))
    .map(file => file.name);
  assert.deepEqual(offenders, []);
});

test('no line over 100 columns but for text that cannot be broken', () => {
  const offenders = sources.flatMap(file =>
    file.text
      .split('\n')
      .map((line, index) => ({ line, at: `${file.name}:${index + 1}` }))
      // Rows of a table, a string and a regular expression cannot be broken; prose can.
      .filter(({ line }) => !/^\s*\* \|/.test(line))
      .filter(({ line }) => line.length > 100 && !/['"`/]/.test(line.trim().slice(2)))
      .map(({ at }) => at),
  );
  assert.deepEqual(offenders, []);
});

test('nothing is left for later and no test is shut off', () => {
  // Put together so that this file does not find itself.
  const marks = new RegExp(
    `\\b(${['TO', 'DO'].join('')}|${['FIX', 'ME'].join('')}|X{3}|${['HA', 'CK'].join('')})\\b`,
  );
  const shut = new RegExp(`\\b(test|it|describe)\\.(${['on', 'ly'].join('')}|todo)\\(`);
  const offenders = sources
    .filter(file => marks.test(file.text) || shut.test(file.text))
    .map(file => file.name);
  assert.deepEqual(offenders, []);
});

test('exported functions and classes of the programs are imported somewhere', () => {
  const imported = new Set(sources.flatMap(file => file.imports));
  const dead = programs
    .filter(file => !imported.has(file.name))
    .filter(file => !/(main|matting|run-tests|-child|picture-worker)\.ts$/.test(file.name))
    .filter(file => !file.name.endsWith('.d.ts'))
    .filter(file => !KERNELS.test(file.name))
    .map(file => file.name);
  assert.deepEqual(dead, []);
});

test('kernels import kernels alone, and each that is exported is called', () => {
  const files = programs.filter(file => KERNELS.test(file.name));
  assert.deepEqual(
    files.flatMap(file => file.imports.filter(name => !KERNELS.test(`${name}.ts`))),
    [],
  );
  const callers = programs.filter(file => file.name.startsWith('inference-node/src/picture/'));
  const exported = files
    .filter(file => !file.name.endsWith('/pixel.ts'))
    .flatMap(file => [...file.text.matchAll(/^export function (\w+)/gm)].map(([, name]) => name));
  assert.ok(exported.length > 15);
  assert.deepEqual(
    exported.filter(name => !callers.some(file => file.text.includes(`kernels.${name}(`))),
    [],
  );
});

test('every variable that a program reads is in docs/operations.md', () => {
  const page = readFileSync(path.join(ROOT, 'docs/operations.md'), 'utf8');
  const read = programs.flatMap(file =>
    [...file.text.matchAll(/\.\w+(?:<[^>()]*>)?\(\s*'(MATTING_[A-Z0-9_]+)'/g)].map(
      ([, name]) => name,
    ),
  );
  assert.ok(new Set(read).size > 30);
  assert.deepEqual(
    read.filter(name => !page.includes(`\`${name}\``)),
    [],
  );
});

test('every variable that a program names is in the list of known ones, and no other', () => {
  const list = 'program/env-names.ts';
  const named = programs
    .filter(file => file.name !== list)
    .flatMap(file => [...file.text.matchAll(/'(MATTING_[A-Z0-9_]+)'/g)].map(([, name]) => name));
  assert.deepEqual([...new Set(named)].sort(), [...MATTING_VARIABLES].sort());
});

test('the files that the pages name are there', () => {
  const pages = globSync('{*.md,docs/*.md,deploy/*.md,models/*.md}', { cwd: ROOT });
  const named = pages.flatMap(page => {
    const text = readFileSync(path.join(ROOT, page), 'utf8');
    const places = text.matchAll(
      /\b(?:control-plane|inference-node|bench|bin|program|proto|test)\/[\w./-]+\.(?:ts|proto|md|json)\b/g,
    );
    return [...places].map(([place]) => ({ page, place }));
  });
  assert.ok(named.length > 20);
  assert.deepEqual(
    named.filter(({ place }) => !existsSync(path.join(ROOT, place))),
    [],
  );
});
