/**
 * Each client is generated completely, and called; two generators make one kind each.
 * Needs: removebg.
 */
import assert from 'node:assert/strict';
import { copyFileSync, writeFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { type ForeignClient, installed, openVenv, type Place, run } from './clients.ts';

const OWN = path.join(import.meta.dirname, 'generated');
/** Includes downloads and compilation. */
const BUILD_MS_MAX = 300_000;

async function opened({ url, directory }: Place): Promise<void> {
  await mkdir(directory, { recursive: true });
  const answer = await fetch(`${url}/v1/openapi.json`);
  writeFileSync(path.join(directory, 'openapi.json'), await answer.text());
}

/** @returns both output streams */
async function done(directory: string, command: string, args: readonly string[], env = {}) {
  const options = { cwd: directory, timeout: BUILD_MS_MAX, env: { ...process.env, ...env } };
  const { stdout, stderr } = await run(command, args, options).catch(error => {
    throw new Error(`${command} ${args.join(' ')}\n${error.stdout}${error.stderr}`);
  });
  return stdout + stderr;
}

const called = ({ url, apiKey, picture }: Place) => [url, apiKey, picture];

const OPENAPI_TYPESCRIPT: ForeignClient = {
  name: 'openapi-typescript 7.13.0 with openapi-fetch 0.17.0',
  async check(place) {
    const { directory } = place;
    await opened(place);
    const packages = ['openapi-typescript@7.13.0', 'openapi-fetch@0.17.0', 'typescript@5.9.3'];
    const flags = ['--ignore-scripts', '--no-audit', '--no-fund'];
    writeFileSync(path.join(directory, 'package.json'), '{"type":"module"}');
    const install = ['install', ...flags, ...packages, '@types/node@24.10.1'];
    await installed('openapi-typescript', 'npm', install, directory);
    copyFileSync(path.join(OWN, 'calls.ts'), path.join(directory, 'calls.ts'));
    await done(directory, 'npx', ['openapi-typescript', 'openapi.json', '-o', 'schema.d.ts']);
    const strict = ['--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess'];
    const target = ['--target', 'es2023', '--module', 'nodenext', '--noEmit'];
    await done(directory, 'npx', ['tsc', ...strict, ...target, '--types', 'node', 'calls.ts']);
    await done(directory, process.execPath, ['calls.ts', ...called(place)]);
    return 'strict types, and a call of each kind';
  },
};

const OPENAPI_PYTHON_CLIENT: ForeignClient = {
  name: 'openapi-python-client 0.29.1',
  async check(place) {
    const { directory } = place;
    await opened(place);
    const python = await openVenv(directory, 'openapi-python-client==0.29.1');
    await installed('ruff', python, ['-m', 'pip', 'install', '--quiet', 'ruff']);
    const bin = path.dirname(python);
    const config = path.join(OWN, 'python.yaml');
    const from = ['--path', 'openapi.json', '--output-path', 'made', '--config', config];
    const env = { PATH: `${bin}${path.delimiter}${process.env.PATH}` };
    const program = path.join(bin, 'openapi-python-client');
    const said = await done(directory, program, ['generate', ...from], env);
    assert.doesNotMatch(said, /warning|error/i);
    const calls = path.join(OWN, 'calls.py');
    await done(directory, python, [calls, ...called(place)], {
      PYTHONPATH: path.join(directory, 'made'),
    });
    return 'no warning, and a call of each kind';
  },
};

const OAPI_CODEGEN: ForeignClient = {
  name: 'oapi-codegen 2.8.2, of Go',
  async check(place) {
    const { directory } = place;
    await opened(place);
    const program = 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2';
    const config = ['-config', path.join(OWN, 'oapi-codegen.yaml'), 'openapi.json'];
    await installed('oapi-codegen', 'go', ['run', program, ...config], directory);
    copyFileSync(path.join(OWN, 'calls.go'), path.join(directory, 'main.go'));
    await done(directory, 'go', ['mod', 'init', 'example.com/calls']);
    await done(directory, 'go', ['mod', 'tidy']);
    await done(directory, 'go', ['run', '.', ...called(place)]);
    return 'a form, JSON, a job and an error';
  },
};

const GENERATOR = 'openapi-generator-cli';
const OPENAPI_GENERATOR: ForeignClient = {
  name: `${GENERATOR} 7.25.0, of Java; of Go and C# it makes one`,
  async check(place) {
    const { directory } = place;
    await opened(place);
    const artifact = `-Dartifact=org.openapitools:${GENERATOR}:7.25.0`;
    const copy = ['-q', '-B', 'dependency:copy', artifact, '-DoutputDirectory=.'];
    await installed(GENERATOR, 'mvn', copy, directory);
    for (const language of ['java', 'go', 'csharp']) {
      const from = ['-i', 'openapi.json', '-g', language, '-o', language];
      const single = ['--additional-properties', 'useSingleRequestParameter=true'];
      // Otherwise Java lacks classes that it imports.
      const forms = ['--global-property', 'skipFormModel=false'];
      const args = ['-jar', `${GENERATOR}-7.25.0.jar`, 'generate', ...from, ...single, ...forms];
      assert.doesNotMatch(await done(directory, 'java', args), / ERROR /);
    }
    const java = path.join(directory, 'java');
    copyFileSync(path.join(OWN, 'Calls.java'), path.join(java, 'src/main/java/Calls.java'));
    const jars = ['dependency:copy-dependencies', '-DoutputDirectory=jars'];
    await done(java, 'mvn', ['-q', '-B', 'compile', ...jars]);
    const classes = ['target/classes', 'jars/*'].join(path.delimiter);
    await done(java, 'java', ['-cp', classes, 'Calls', ...called(place)]);
    return 'JSON, a job and an error';
  },
};

export const GENERATED_CLIENTS: readonly ForeignClient[] = [
  OPENAPI_TYPESCRIPT,
  OPENAPI_PYTHON_CLIENT,
  OAPI_CODEGEN,
  OPENAPI_GENERATOR,
];
