/**
 * Schemathesis (PyPI) against both OpenAPI documents: no answer may be the server's fault, or one
 * that its document does not have. It is installed into node_modules/.schemathesis first.
 *
 *     sh bin/node24 test/schemathesis/main.ts [--seed=1] [--examples=100]
 *
 * Jobs succeed without a node, and no name is looked up. Needs: removebg, portal.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { imageBody } from '../../control-plane/core/test/support/test-app.ts';
import { openTestApp } from '../../control-plane/test/app.ts';

const VERSION = '4.32.5';
const ROOT = path.resolve(import.meta.dirname, '../..');
const VENV = path.join(ROOT, 'node_modules/.schemathesis', VERSION);
const PROGRAM = path.join(VENV, 'bin/schemathesis');
/** With the header for its key. */
const DOCUMENTS = {
  '/v1/openapi.json': 'Authorization: Bearer ',
  '/v1.0/openapi.json': 'X-Api-Key: ',
} as const;
const CHECKS = [
  'not_a_server_error',
  'status_code_conformance',
  'content_type_conformance',
  'response_headers_conformance',
  'response_schema_conformance',
  'negative_data_rejection',
  'missing_required_header',
  'unsupported_method',
  'allow_header_conformance',
  'ignored_auth',
];
const BYTES = 'application/octet-stream';
const RESULT = Buffer.from('a result');

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    examples: { type: 'string', default: '100' },
  },
});

function install(): void {
  if (existsSync(PROGRAM)) return;
  console.log(`Installing Schemathesis ${VERSION} ...`);
  for (const [command, ...args] of [
    ['python3', '-m', 'venv', VENV],
    [path.join(VENV, 'bin/python'), '-m', 'pip', 'install', '-q', `schemathesis==${VERSION}`],
  ] as const) {
    const { status } = spawnSync(command, args, { stdio: 'inherit' });
    if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${status}`);
  }
}

install();
const app = await openTestApp({
  credits: 100_000_000,
  jobsInFlightMax: 1_000_000,
  submissionsPerMinute: 100_000_000,
  readsPerMinute: 100_000_000,
  syncWaitMs: 2000,
  resolveHost: async () => [],
});
const directory = mkdtempSync(path.join(tmpdir(), 'matting-schemathesis-'));
let jobs: { stop(): Promise<void> } | undefined;
try {
  await app.app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = app.app.server.address() as AddressInfo;
  const origin = `http://127.0.0.1:${port}`;
  const known = await app.post('/v1/matting/jobs', imageBody());
  const { job_id } = known.json();
  const { token } = await app.succeedJob(job_id, RESULT);
  jobs = app.onSubmitted(id => app.succeedJob(id, RESULT));
  // No generator could invent these.
  const parameters = path.join(directory, 'schemathesis.toml');
  writeFileSync(parameters, `[parameters]\ntoken = "${token}"\njob_id = "${job_id}"\n`);
  for (const [document, header] of Object.entries(DOCUMENTS)) {
    const file = path.join(directory, 'openapi.json');
    const text = await (await fetch(`${origin}${document}`)).text();
    // Schemathesis fails at some wrong bodies that it makes of `binary`.
    writeFileSync(file, text.replaceAll('"format":"binary"', `"contentMediaType":"${BYTES}"`));
    const args = ['--config-file', parameters, '--no-color', 'run', file];
    args.push('--url', origin, '--checks', CHECKS.join(','), '--header', header + app.token);
    args.push('--seed', values.seed, '--max-examples', values.examples, '--continue-on-failure');
    const child = spawn(PROGRAM, args, { stdio: 'inherit', cwd: directory });
    const [code] = await once(child, 'exit');
    if (code !== 0) process.exitCode = 1;
  }
} finally {
  await jobs?.stop();
  await app.close();
  rmSync(directory, { recursive: true, force: true });
}
