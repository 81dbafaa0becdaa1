/** Codes unknown to the command, and a proxy's own answers. */
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import ava from 'ava';
import sinon from 'sinon';
import { main } from '../../client/src/command/main.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

const FOLDERS = await temporaryFolder({ teardown: test.after.always });
const PICTURES = 3;

interface Refusal {
  readonly status: number;
  /** Undefined: a page of another program. */
  readonly code?: string;
}

let refusal: Refusal;
let posts = 0;

/** Reports credits, and refuses every picture. */
const service = createServer((request, response) => {
  request.resume();
  if (request.method === 'GET') {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ credits: { available: 100, reserved: 0 } }));
    return;
  }
  posts += 1;
  const { status, code } = refusal;
  const isPage = code === undefined;
  const problem = { title: 'a title', status, detail: 'what is wrong', code, retryable: false };
  request.on('end', () => {
    response.writeHead(status, {
      'content-type': isPage ? 'text/html' : 'application/problem+json',
    });
    response.end(isPage ? '<h1>413</h1>' : JSON.stringify({ ...problem, request_id: 'req_1' }));
  });
});

test.before(() => new Promise<void>(resolve => service.listen(0, '127.0.0.1', resolve)));
test.after.always(() => void service.close());

/** One at a time. Returns the output and the number of requests. */
async function removeFolder(refused: Refusal) {
  refusal = refused;
  posts = 0;
  const folder = mkdtempSync(path.join(FOLDERS, 'test-'));
  mkdirSync(path.join(folder, 'photos'));
  for (let number = 0; number < PICTURES; number += 1) {
    writeFileSync(path.join(folder, 'photos', `${number}.png`), `picture ${number}`);
  }
  const said: string[] = [];
  const keep = (text: unknown) => {
    said.push(String(text));
    return true;
  };
  const out = sinon.stub(process.stdout, 'write').callsFake(keep);
  const err = sinon.stub(process.stderr, 'write').callsFake(keep);
  process.env.MATTING_API_KEY = 'mk_anything';
  const url = `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
  const to = path.join(folder, 'out');
  try {
    const args = [path.join(folder, 'photos'), '--to', to, '--url', url, '--concurrency', '1'];
    const code = await main(args);
    return { code, posts, said: said.join('') };
  } finally {
    out.restore();
    err.restore();
    delete process.env.MATTING_API_KEY;
  }
}

for (const refused of [
  { status: 400, code: 'IMAGE_TOO_SMALL' },
  { status: 409, code: 'IMAGE_SEEN_BEFORE' },
  { status: 422, code: 'IMAGE_IS_A_DRAWING' },
  { status: 500, code: 'RESULT_SPOILT' },
  { status: 400, code: 'UNSUPPORTED_IMAGE_FORMAT' },
  { status: 413 },
]) {
  const { status, code = 'the page of a proxy' } = refused;
  test(`${status} ${code} fails its picture, and the next ones are sent`, async t => {
    const end = await removeFolder(refused);
    t.is(end.posts, PICTURES, end.said);
    t.is(end.code, 1);
    t.regex(end.said, /0 cut out \(0 jobs\), 3 failed/);
    t.notRegex(end.said, /stopped|not tried/);
  });
}

for (const refused of [
  { status: 401, code: 'KEY_ASLEEP' },
  { status: 402, code: 'CREDITS_FROZEN' },
  { status: 403, code: 'KEY_ABROAD' },
  { status: 404, code: 'NOT_FOUND' },
  { status: 400, code: 'INVALID_PARAMETER' },
]) {
  test(`${refused.status} ${refused.code} stops the folder: no picture fares better`, async t => {
    const end = await removeFolder(refused);
    t.is(end.posts, 1, end.said);
    t.regex(end.said, new RegExp(`stopped: ${refused.code}`));
    t.regex(end.said, /1 failed, 2 not tried/);
  });
}
