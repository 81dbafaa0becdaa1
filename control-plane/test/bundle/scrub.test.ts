/** What is cut out of texts, and what stays. */
import { execFile } from 'node:child_process';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import ava from 'ava';
import { MATTING_VARIABLES } from '#program/env-names.ts';
import { LOG_BYTES_MAX, readLog } from '../../src/bundle/log-lines.ts';
import { scrubbed, scrubbedOfPlaces } from '../../src/bundle/scrub.ts';
import { shownConfiguration } from '../../src/bundle/shown-configuration.ts';

const test = ava.serial;

let directory: string;
test.before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-bundle-'));
});
test.after.always(() => rm(directory, { recursive: true }));

/** Each a text, and the part of it that nobody may see. */
const PLANTED: readonly (readonly [text: string, secret: string])[] = [
  ['at https://shop.example/a.jpg?sig=abc end', 'shop.example'],
  ['s3://bucket/prefix', 'bucket'],
  ['mysql://matting:hunter2@db.internal/m', 'hunter2'],
  ['mail to anna@shop.example now', 'anna@shop.example'],
  ['key mk_4fZ0qkT9xW2b_abcdefghij', 'mk_4fZ0qkT9xW2b'],
  ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'MfKQ9r8'],
  ['Authorization: Bearer abc.def', 'abc.def'],
  ['authorization: "Basic dTpw"', 'dTpw'],
  ['password=hunter2', 'hunter2'],
  ['{"node_token": "short"}', 'short'],
  ['the X-Amz-Signature=beef', 'beef'],
  ['connect ECONNREFUSED 203.0.113.9:3306', '203.0.113.9'],
  ["Access denied for user 'm'@'10.1.2.3' (using password: YES)", '10.1.2.3'],
  ['connect ETIMEDOUT fd00:1:2:3::12:50051', 'fd00'],
  ['connect ETIMEDOUT 2001:db8:0:1:1:1:1:1:443', '2001:db8'],
  ['at [2001:db8::7]:443 nobody', 'db8'],
  ['getaddrinfo ENOTFOUND shop.example', 'shop.example'],
  ['getaddrinfo EAI_AGAIN db.internal', 'db.internal'],
];

test('cuts out URLs, mails, keys and whatever is named as a secret', t => {
  for (const [text, secret] of PLANTED) t.false(scrubbed(text).includes(secret), scrubbed(text));
});

test('cuts out what was made at random, in each form it is written', t => {
  for (let times = 0; times < 500; times += 1) {
    const bytes = randomBytes(24 + (times % 41));
    for (const encoding of ['hex', 'base64url'] as const) {
      const secret = bytes.toString(encoding);
      t.false(scrubbed(`it is ${secret}, so`).includes(secret), secret);
    }
    const base64 = bytes.toString('base64');
    t.false(scrubbed(base64).includes(base64), base64);
  }
  t.true(!scrubbed(createHash('sha256').update('x').digest('hex')).match(/[0-9a-f]{16}/));
});

test('cuts out what was made at random and has no digit', t => {
  for (const secret of ['DApNvMGBCkEygvcvNz-aaWzbtqis_gT_', 'XpuLBCyxbxgqGqhDoinousyjRmzoaonO'])
    t.false(scrubbed(`it is ${secret}, so`).includes(secret), secret);
});

test('leaves words, ids, names of files and hosts', t => {
  const texts = [
    'the database took too long over a statement',
    `job ${randomUUID()}`,
    'at run (file:///srv/matting/control-plane/src/services/dispatch/job-run.ts:281:13)',
    'connect ECONNREFUSED 127.0.0.1:3306',
    'connect ECONNREFUSED ::1:3306, at [::1]:80 and 0.0.0.0:8080',
    'Node 24.1.0 and Debian 6.12.38+deb13 at 2026-11-21T16:00:12.345Z, code::block',
    'matting-node-7d9f8b6c5d-x2k4q.matting.svc.cluster.local',
    'MATTING_STORAGE_FALLBACK_URL',
    'OrtSessionOptionsAppendExecutionProvider_Cuda',
    'at TLSWrap.callbackTrampoline, then processTicksAndRejections',
  ];
  for (const text of texts) t.is(scrubbed(text), text);
});

test('cuts out of what the doctor found where machines are', t => {
  const cut = 'gpu-7.shop.internal:50051 cannot be reached from here';
  t.is(scrubbedOfPlaces(cut), '[host] cannot be reached from here');
  const found = 'ready at 127.0.0.1:8080 and localhost:9090: 3 of 4, in /srv/matting/data';
  t.is(scrubbedOfPlaces(found), found);
});

test('shows of variables numbers, truth values and fixed words, whatever they are set to', t => {
  const secret = 'not-to-be-seen-9f8e7d';
  const all = Object.fromEntries(MATTING_VARIABLES.map(name => [name, secret]));
  t.false(JSON.stringify(shownConfiguration(all)).includes(secret));
  const digits = Object.fromEntries(MATTING_VARIABLES.map(name => [name, '90210']));
  const { variables } = shownConfiguration(digits);
  const shown = Object.keys(variables).filter(name => variables[name] === '90210');
  t.true(shown.includes('MATTING_PORT') && shown.length > 20);
  t.deepEqual(
    shown.filter(name => /TOKEN|SECRET|OPERATOR|API_KEY|INSTRUCTIONS/.test(name)),
    [],
  );
  const {
    variables: some,
    unknown,
    others,
  } = shownConfiguration({
    MATTING_QUALITY: 'best',
    MATTING_DATABASE_URL: 'mysql://matting:hunter2@db.internal/matting?ssl-mode=REQUIRED',
    MATTING_HOST: '0.0.0.0',
    MATTING_REGISTRY_HOST: '10.1.2.3',
    MATTING_NODE_TOKEN: secret,
    MATTING_TYPO: secret,
    AWS_SECRET_ACCESS_KEY: secret,
    HOME: '/root',
  });
  t.deepEqual(some, {
    MATTING_DATABASE_URL: 'mysql: with ssl-mode',
    MATTING_HOST: 'every interface',
    MATTING_NODE_TOKEN: 'set',
    MATTING_QUALITY: 'best',
    MATTING_REGISTRY_HOST: 'one address',
  });
  t.deepEqual([unknown, others], [['MATTING_TYPO'], ['AWS_SECRET_ACCESS_KEY']]);
});

test('keeps of log lines numbers and known fields, scrubbed, and of other lines nothing', async t => {
  const file = path.join(directory, 'log');
  const line = {
    level: 50,
    time: '2026-11-21T16:00:00.000Z',
    program: 'control-plane',
    msg: 'attempt of https://shop.example/a.jpg',
    jobId: '6b1c8f1e-6a53-4b0e-9a55-0d7f3d3c1f00',
    trace_id: 'a'.repeat(32),
    span_id: 'not a span',
    durationMs: 12.5,
    address: '203.0.113.9',
    apiKey: 'mk_secret',
    err: { type: 'Error', message: 'password=hunter2', code: 'E', body: 'bytes', stack: 'at x' },
    timings: { decode_ms: 3, note: 'hunter2' },
  };
  await writeFile(file, `${JSON.stringify(line)}\nnode: hunter2\n[1]\n{"msg":"no level"}\n`);
  const { lines, leftOut } = await readLog(file);
  t.is(leftOut, 3);
  t.deepEqual(
    lines.map(text => JSON.parse(text)),
    [
      {
        level: 50,
        time: line.time,
        program: 'control-plane',
        msg: 'attempt of [URL]',
        jobId: line.jobId,
        trace_id: line.trace_id,
        durationMs: 12.5,
        err: { type: 'Error', message: 'password=[left out]', code: 'E', stack: 'at x' },
        timings: { decode_ms: 3 },
      },
    ],
  );
});

test('waits for no pipe, and says what to do', async t => {
  const pipe = path.join(directory, 'pipe');
  await promisify(execFile)('mkfifo', [pipe]);
  await t.throwsAsync(readLog(pipe), { message: /write the lines into one first/ });
});

test('reads the end of a long log', async t => {
  const file = path.join(directory, 'long');
  const line = `${JSON.stringify({ level: 30, msg: 'x'.repeat(2000) })}\n`;
  await writeFile(file, line.repeat(Math.ceil(LOG_BYTES_MAX / line.length) + 10));
  const { lines, leftOut } = await readLog(file);
  t.is(leftOut, 0);
  t.true(lines.length <= LOG_BYTES_MAX / line.length);
});
