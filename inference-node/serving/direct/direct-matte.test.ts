/** Tests matte calls whose files travel between the node and the storage. */

import { createHash } from 'node:crypto';
import { status as grpcStatus } from '@grpc/grpc-js';
import {
  BackgroundPicture,
  DirectInput,
  Finishing,
  type MatteHeader,
  type MatteRequest,
  type ResultPlace,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { bytes, ScriptedStorage, silence, status } from '../test/scripted-storage.ts';
import {
  chunk,
  header,
  MatteCaller,
  openTestNode,
  type TestNode,
  untilNothingAdmitted,
} from '../test/test-node.ts';
import { DirectFiles } from './direct-files.ts';
import { STORAGE_BOUNDS, StorageClient } from './storage-client.ts';

const test = ava.serial;

const TOKEN = 'the token of the fleet';
const INPUT = 'a picture';
const RESULT = 'a result';

let storage: ScriptedStorage;
let direct: DirectFiles;
let node: TestNode;

test.beforeEach(async () => {
  storage = await ScriptedStorage.start(bytes(INPUT));
  const bounds = { ...STORAGE_BOUNDS, retryWaitMs: 1 };
  direct = new DirectFiles([storage.origin], new StorageClient(bounds));
  const callerTokens = [{ name: 'shop', token: 'the token of a shop' }];
  node = await openTestNode({ token: TOKEN, direct, callers: { callerTokens } });
});

test.afterEach.always(async () => {
  await node.close();
  await direct.close();
  await storage.close();
});

const input = (fields: Partial<DirectInput> = {}): MatteRequest => ({
  message: {
    $case: 'directInput',
    value: DirectInput.create({ url: `${storage.origin}/b/inputs/1?sig=1`, ...fields }),
  },
});

const place = (fields: Partial<ResultPlace> = {}): MatteRequest => ({
  message: {
    $case: 'resultPlace',
    value: {
      url: `${storage.origin}/b/results/1-1?sig=2`,
      headers: { 'if-none-match': '*' },
      validMs: 60_000,
      ...fields,
    },
  },
});

function call(fields: Partial<MatteHeader> = {}, token = TOKEN): MatteCaller {
  const given = { contentLength: INPUT.length, directOrigin: storage.origin, ...fields };
  return new MatteCaller(node, { token }).send(header(given));
}

async function untilRequests(count: number): Promise<void> {
  await until(`${count} requests at the storage`, () => storage.requests.length >= count);
}

async function untilDigest(fields: Partial<MatteHeader> = {}): Promise<MatteCaller> {
  const caller = call(fields);
  await caller.until('admitted');
  caller.send(input());
  await caller.until('resultDigest');
  return caller;
}

test('a direct call › gets its picture from the storage, puts its result there, and says what it put', async t => {
  const caller = await untilDigest({ thumbnail: true });
  t.is(node.pictures.decoded[0]?.file.toString(), INPUT);
  storage.answer(status(200));
  caller.send(place()).call.end();
  const done = await caller.until('done');
  t.is(await caller.ended, undefined);
  const digest = createHash('sha256').update(RESULT).digest();
  t.true(done.sha256.equals(digest));
  t.is(done.thumbnail.toString(), 'thumbnail', 'which comes with the last message');
  t.true((await caller.until('resultDigest')).sha256.equals(digest));
  t.is((await caller.until('resultHeader')).sizeBytes, RESULT.length);
  const kinds = ['admitted', 'progress', 'resultHeader', 'resultDigest', 'done'];
  t.deepEqual(caller.kinds(), kinds, 'no byte of a file travels in the call');
  const [got, put] = storage.requests;
  t.deepEqual([got?.method, got?.path], ['GET', '/b/inputs/1?sig=1']);
  t.deepEqual([put?.method, put?.path], ['PUT', '/b/results/1-1?sig=2']);
  t.is(put?.body.toString(), RESULT);
  t.is(put?.headers['if-none-match'], '*');
  await untilNothingAdmitted(node);
});

test('a direct call › gets the picture of its background too', async t => {
  const value = BackgroundPicture.create({ contentLength: 6 });
  const background = { $case: 'backgroundPicture', value } as const;
  storage.answer(bytes(INPUT), bytes('behind'));
  const caller = call({ finishing: Finishing.create({ background }) });
  await caller.until('admitted');
  caller.send(input({ backgroundUrl: `${storage.origin}/b/backgrounds/1?sig=3` }));
  await caller.until('resultDigest');
  t.is(node.pictures.decoded[0]?.background?.file.toString(), 'behind');
  t.is(storage.requests[1]?.path, '/b/backgrounds/1?sig=3');
});

test("a direct call › of a caller with a token of its own is refused, and so is an origin that isn't listed", async t => {
  await call({}, 'the token of a shop').refused({
    code: 'INVALID_REQUEST',
    status: grpcStatus.INVALID_ARGUMENT,
  });
  await call({ directOrigin: 'http://169.254.169.254' }).refused({
    code: 'NODE_INCAPABLE',
    status: grpcStatus.FAILED_PRECONDITION,
  });
  t.is(node.admission.snapshot().images, 0);
  t.is(storage.requests.length, 0);
});

test('a direct call › whose references lead to another host requests none of them', async t => {
  for (const bad of [
    input({ url: 'http://169.254.169.254/latest/meta-data' }),
    input({ url: `${storage.origin}@evil.example/` }),
    input({ backgroundUrl: `${storage.origin}/b/backgrounds/1` }),
  ]) {
    const caller = call();
    await caller.until('admitted');
    caller.send(bad);
    await caller.refused({ code: 'INVALID_REQUEST' });
  }
  t.is(storage.requests.length, 0);
  await untilNothingAdmitted(node);
});

test('a direct call › whose place is on another host, or has headers of its own, puts nothing', async t => {
  for (const bad of [
    place({ url: 'http://127.0.0.1:1/b/results/1' }),
    place({ headers: { authorization: 'Bearer stolen' } }),
  ]) {
    storage.answer(bytes(INPUT));
    const caller = await untilDigest();
    caller.send(bad);
    await caller.refused({ code: 'INVALID_REQUEST' });
  }
  t.deepEqual(
    storage.requests.map(({ method }) => method),
    ['GET', 'GET'],
  );
});

test('a direct call › that sends bytes where references are expected is malformed', async t => {
  const early = call();
  await early.until('admitted');
  early.send(chunk(INPUT));
  await early.refused({ code: 'INVALID_REQUEST' });
  const late = await untilDigest();
  late.send(input());
  await late.refused({ code: 'INVALID_REQUEST' });
  const never = await untilDigest();
  never.call.end();
  await t.notThrowsAsync(never.refused({ code: 'INVALID_REQUEST' }));
});

test('a direct call › blames the storage, never the image, for bytes that are not the declared ones', async t => {
  const other = createHash('sha256').update('another picture').digest();
  const wrong = [
    { storage: bytes(INPUT), fields: { sha256: other } },
    {
      storage: bytes(INPUT, { 'x-amz-checksum-sha256': other.toString('base64') }),
      fields: {},
    },
  ];
  for (const { storage: answer, fields } of wrong) {
    storage.answer(answer);
    const caller = call(fields);
    await caller.until('admitted');
    caller.send(input());
    await caller.refused({
      code: 'STORAGE_UNREACHABLE',
      retryable: true,
      status: grpcStatus.UNAVAILABLE,
    });
  }
  t.is(node.pictures.decoded.length, 0);
  await untilNothingAdmitted(node);
});

test('a direct call › whose result cannot be put fails by the storage, and frees its permit', async t => {
  storage.answer(bytes(INPUT), status(403));
  const caller = await untilDigest();
  caller.send(place()).call.end();
  await caller.refused({ code: 'STORAGE_UNREACHABLE' });
  await t.notThrowsAsync(untilNothingAdmitted(node));
});

test('a direct call › with a place that is valid no longer gives up in time', async t => {
  storage.answer(bytes(INPUT), silence);
  const caller = await untilDigest();
  caller.send(place({ validMs: 1 })).call.end();
  await t.notThrowsAsync(caller.refused({ message: /time is over/ }));
});

test('a direct call › waits for a place no longer than for a reader', async t => {
  await node.close();
  node = await openTestNode({ token: TOKEN, direct, bounds: { sendSilenceMaxMs: 50 } });
  const caller = await untilDigest();
  await caller.refused({ code: 'CALL_DEADLINE_EXCEEDED' });
  await t.notThrowsAsync(untilNothingAdmitted(node));
});

test('a direct call › that is cancelled under a GET ends it', async t => {
  storage.answer(silence);
  const caller = call();
  await caller.until('admitted');
  caller.send(input());
  await untilRequests(1);
  caller.call.cancel();
  await t.notThrowsAsync(untilNothingAdmitted(node));
});
