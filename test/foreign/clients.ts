/** Third-party clients of remove.bg; Java's is its sample. Needs: removebg. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { readImageHeader } from '../../proto/contract/image-header.ts';

export const run = promisify(execFile);
const INSTALL_MS_MAX = 300_000;
const CALL_MS_MAX = 120_000;
const ADDRESS = 'https://api.remove.bg';

export interface Place {
  readonly url: string;
  readonly apiKey: string;
  readonly picture: string;
  readonly directory: string;
}

export class Skipped extends Error {}

export interface ForeignClient {
  readonly name: string;
  /**
   * Resolves with a description.
   * @throws Skipped, AssertionError
   */
  check(place: Place): Promise<string>;
}

async function requirePicture(
  bytes: Buffer,
  expected: { readonly format: string; readonly pixelsMax?: number | undefined },
): Promise<string> {
  const read = async (offset: number, length: number) => bytes.subarray(offset, offset + length);
  const header = await readImageHeader(read, bytes.length);
  assert.ok(header, 'what came back is no picture');
  const { format, width = 0, height = 0 } = header;
  assert.equal(format, expected.format);
  const pixelsMax = expected.pixelsMax ?? Number.POSITIVE_INFINITY;
  assert.ok(width > 0 && width * height <= pixelsMax * 1.01, `${width}x${height}`);
  return `${format} ${width}x${height}`;
}

export async function installed(
  what: string,
  command: string,
  args: readonly string[],
  cwd?: string,
): Promise<void> {
  try {
    await run(command, args, { timeout: INSTALL_MS_MAX, ...(cwd === undefined ? {} : { cwd }) });
  } catch (cause) {
    const [line = ''] = String((cause as { stderr?: string }).stderr || cause).split('\n');
    throw new Skipped(`${what} cannot be installed here: ${line}`, { cause });
  }
}

/** Replaces the address everywhere; fails if it is absent. */
function redirect(file: string, url: string): void {
  const source = readFileSync(file, 'utf8');
  assert.ok(source.includes(ADDRESS), `${file} has another address`);
  writeFileSync(file, source.replaceAll(ADDRESS, url));
}

export async function openVenv(directory: string, requirement: string): Promise<string> {
  const venv = path.join(directory, 'venv');
  await installed('a virtual environment of Python', 'python3', ['-m', 'venv', venv]);
  const python = path.join(venv, 'bin/python');
  await installed(requirement, python, ['-m', 'pip', 'install', '--quiet', requirement]);
  return python;
}

async function callPython(python: string, lines: readonly string[], args: readonly string[]) {
  const { stdout } = await run(python, ['-c', lines.join('\n'), ...args], {
    timeout: CALL_MS_MAX,
    encoding: 'utf8',
  });
  return stdout.trim();
}

const NPM_REMOVE_BG: ForeignClient = {
  name: 'npm remove.bg 1.3.0',
  async check({ url, apiKey, picture, directory }) {
    await mkdir(directory, { recursive: true });
    const install = [
      'install',
      '--prefix',
      directory,
      '--ignore-scripts',
      '--no-audit',
      '--no-fund',
    ];
    await installed('remove.bg', 'npm', [...install, 'remove.bg@1.3.0'], directory);
    redirect(path.join(directory, 'node_modules/remove.bg/dist/index.js'), url);
    const script = `
      const client = require('remove.bg');
      const [apiKey, path, outputFile] = process.argv.slice(1);
      const base64img = require('fs').readFileSync(path).toString('base64');
      (async () => {
        const options = { apiKey, size: 'regular', type: 'auto' };
        const file = await client.removeBackgroundFromImageFile({ ...options, path, outputFile });
        const base64 = await client.removeBackgroundFromImageBase64({
          ...options, base64img, crop: true, crop_margin: '10%', outputFile: outputFile + '.crop',
        });
        const wrong = await client
          .removeBackgroundFromImageBase64({ ...options, base64img, size: 'huge' })
          .catch(errors => errors[0].code);
        delete file.base64img;
        console.log(JSON.stringify({ file, cropped: base64.resultWidth, wrong }));
      })().catch(error => { console.error(error); process.exit(1); });`;
    const out = path.join(directory, 'out.png');
    const { stdout } = await run(process.execPath, ['-e', script, '--', apiKey, picture, out], {
      cwd: directory,
      timeout: CALL_MS_MAX,
      encoding: 'utf8',
    });
    const { file, cropped, wrong } = JSON.parse(stdout);
    assert.equal(file.creditsCharged, '1');
    assert.equal(file.detectedType, 'other');
    assert.ok(Number(file.rateLimitRemaining) < Number(file.rateLimit));
    assert.ok(Number(cropped) > 0);
    assert.equal(wrong, 'invalid_size');
    const seen = await requirePicture(readFileSync(out), { format: 'png', pixelsMax: 250_000 });
    await requirePicture(readFileSync(`${out}.crop`), { format: 'png' });
    return `file and Base64 as JSON, ${seen}, cropped, a wrong size refused`;
  },
};

const PYPI_REMOVEBG: ForeignClient = {
  name: 'PyPI removebg 0.4',
  async check({ url, apiKey, picture, directory }) {
    await mkdir(directory, { recursive: true });
    const python = await openVenv(directory, 'removebg==0.4');
    const copy = path.join(directory, 'demo.jpg');
    writeFileSync(copy, readFileSync(picture));
    const lines = [
      'import sys, base64, removebg.removebg as module',
      'url, key, copy, log = sys.argv[1:]',
      'module.API_ENDPOINT = url + "/v1.0/removebg"',
      'client = module.RemoveBg(key, log)',
      'client.remove_background_from_img_file(copy)',
      'text = base64.b64encode(open(copy, "rb").read())',
      'client.remove_background_from_base64_img(text, size="4k", new_file_name=copy + ".b64")',
    ];
    await callPython(python, lines, [url, apiKey, copy, path.join(directory, 'log')]);
    const small = readFileSync(`${copy}_no_bg.png`);
    const seen = await requirePicture(small, { format: 'png', pixelsMax: 250_000 });
    const full = await requirePicture(readFileSync(`${copy}.b64`), { format: 'png' });
    return `file ${seen}, Base64 ${full}`;
  },
};

const PYPI_REMOVE_BG_API: ForeignClient = {
  name: 'PyPI remove-bg-api 0.2.1',
  async check({ url, apiKey, picture, directory }) {
    await mkdir(directory, { recursive: true });
    // The package does not declare one of its imports.
    const python = await openVenv(directory, 'remove-bg-api==0.2.1');
    await installed('requests', python, ['-m', 'pip', 'install', '--quiet', 'requests']);
    const out = path.join(directory, 'out.png');
    const lines = [
      'import sys, json, remove_bg_api as module',
      'url, key, picture, out = sys.argv[1:]',
      'module.API_URL = url + "/v1.0"',
      'client = module.RemoveBg(key)',
      'before = client.account.balance()',
      // Its own size: otherwise the key would find another client's job.
      'client.remove_bg_file(picture, out, size="hd", raw=False)',
      'local = client.account.balance()',
      'client.account.refresh_balance()',
      'print(json.dumps([before, local, client.account.balance(), client.account.free_api_calls()]))',
    ];
    const printed = await callPython(python, lines, [url, apiKey, picture, out]);
    const [before, local, after, free] = JSON.parse(printed);
    assert.deepEqual([local, after, free], [before - 1, before - 1, 0]);
    const seen = await requirePicture(readFileSync(out), { format: 'png' });
    return `${seen}, its balance went from ${before} to ${after}`;
  },
};

const PYPI_REMOVEBG_CLI: ForeignClient = {
  name: 'PyPI removebg-cli 1.0.0',
  async check({ url, apiKey, picture, directory }) {
    await mkdir(directory, { recursive: true });
    const python = await openVenv(directory, 'removebg-cli==1.0.0');
    const find = ['import removebg_cli', 'print(removebg_cli.__file__)'];
    redirect(await callPython(python, find, []), url);
    const command = path.join(path.dirname(python), 'removebg');
    const out = path.join(directory, 'out.png');
    const env = { ...process.env, REMOVE_BG_API_KEY: apiKey, NO_COLOR: '1' };
    const options = { env, timeout: CALL_MS_MAX, encoding: 'utf8' } as const;
    const cut = await run(
      command,
      [picture, '-o', out, '-s', 'full', '-b', 'white', '-c'],
      options,
    );
    assert.match(cut.stdout, /1 credits/);
    const account = await run(command, ['--account'], options);
    assert.match(account.stdout, /Credits/);
    const seen = await requirePicture(readFileSync(out), { format: 'png' });
    return `cropped on white, ${seen}, and its account`;
  },
};

/** From Maven Central, with remove.bg's sample compiled against it. */
function javaClient(version: string, program: string, artifacts: readonly string[]): ForeignClient {
  return {
    name: `Maven Central Apache HttpClient ${version}`,
    async check({ url, apiKey, picture, directory }) {
      await mkdir(directory, { recursive: true });
      const dependencies = artifacts.map(artifact => {
        const [group, name] = artifact.split(':');
        return `<dependency><groupId>${group}</groupId><artifactId>${name}</artifactId>
          <version>${version}</version></dependency>`;
      });
      writeFileSync(
        path.join(directory, 'pom.xml'),
        `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
          <groupId>sample</groupId><artifactId>sample</artifactId><version>1</version>
          <dependencies>${dependencies.join('\n')}</dependencies></project>`,
      );
      const copy = ['-q', '-B', 'dependency:copy-dependencies', '-DoutputDirectory=jars'];
      await installed('Apache HttpClient', 'mvn', copy, directory);
      const source = path.join(import.meta.dirname, `java/${program}.java`);
      const jars = path.join(directory, 'jars/*');
      await installed('a program', 'javac', ['-cp', jars, '-d', directory, source], directory);
      const classes = `${directory}${path.delimiter}${jars}`;
      const args = ['-cp', classes, program, url, apiKey, picture, directory];
      await run('java', args, { timeout: CALL_MS_MAX });
      const seen: string[] = [];
      for (const [kind, pixelsMax] of [['form'], ['pairs', 250_000], ['matting']] as const) {
        const bytes = readFileSync(path.join(directory, `${kind}.png`));
        seen.push(`${kind} ${await requirePicture(bytes, { format: 'png', pixelsMax })}`);
      }
      return seen.join(', ');
    },
  };
}

const HTTP_CLIENT_4 = javaClient('4.5.14', 'HttpClient4', [
  'org.apache.httpcomponents:fluent-hc',
  'org.apache.httpcomponents:httpmime',
]);
const HTTP_CLIENT_5 = javaClient('5.4.4', 'HttpClient5', [
  'org.apache.httpcomponents.client5:httpclient5-fluent',
]);

export const FOREIGN_CLIENTS: readonly ForeignClient[] = [
  NPM_REMOVE_BG,
  PYPI_REMOVEBG,
  PYPI_REMOVE_BG_API,
  PYPI_REMOVEBG_CLI,
  HTTP_CLIENT_4,
  HTTP_CLIENT_5,
];
