import { isDeepStrictEqual } from 'node:util';
import { headerMessage } from '@matting/nodes/matte-client-call.ts';
import { inTurn, type Script } from '@matting/nodes/test/scripted-exchange.ts';
import { callOf, type ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import { CAPABILITIES, capabilitiesOfHints } from '@matting/proto/contract/capabilities.ts';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import { HINT_POINTS_MAX, HINT_SHAPES_MAX, type Hints } from '@matting/proto/contract/hints.ts';
import {
  BACKGROUND_BYTES_MAX,
  HEADER_BYTES_MAX,
  MESSAGE_BYTES_SMALL,
} from '@matting/proto/contract/limits.ts';
import { MatteRequest } from '@matting/proto/gen/matting/v1/matte_service.ts';
import ava from 'ava';
import { failureOf, until, useHarness } from '../test/harness.ts';
import { linesLogger } from '../test/support/raw-http.ts';

const test = ava.serial;

const harness = useHarness(test);

const wellDone: Script = exchange => exchange.cutOut();
const failing =
  (code: ErrorCode): Script =>
  async exchange =>
    exchange.fail(code);
const rejecting = failing('INVALID_REQUEST');
const requests = (nodes: readonly ScriptedNode[]) => nodes.map(({ headers }) => headers.length);

test('a request that nodes reject › is tried on one other node, and ends for good', async t => {
  const nodes = [];
  for (let count = 0; count < 3; count += 1) nodes.push(await harness.addNode(rejecting));
  const { fleet } = await harness.startReplica();
  const job = await harness.done();
  t.deepEqual(failureOf(job), ['PROCESSING_FAILED', false]);
  t.deepEqual(requests(nodes).toSorted(), [0, 1, 1]);
  await harness.assertMoneySettled({ charged: 0 });
  t.true(
    fleet.snapshots().every(node => node.imagesFree > 0),
    'no node counts as full',
  );
});

test('a request that nodes reject › is tried once more on the only node', async t => {
  const node = await harness.addNode(rejecting);
  await harness.startReplica();
  t.deepEqual(failureOf(await harness.done()), ['PROCESSING_FAILED', false]);
  t.is(node.headers.length, 2);
  await harness.assertMoneySettled({ charged: 0 });
});

test('a request that one node rejects › is done by another', async t => {
  await harness.addNode(rejecting);
  await harness.addNode(wellDone);
  await harness.startReplica();
  for (let count = 0; count < 4; count += 1) t.is((await harness.done()).state, 'succeeded');
});

test('rejected requests › cost a node no trust', async t => {
  const node = await harness.addNode(rejecting);
  const { fleet } = await harness.startReplica();
  for (let count = 0; count < 5; count += 1) await harness.done();
  t.is(node.headers.length, 10);
  t.is(fleet.snapshots()[0]?.ejectedUntilMs, 0);
});

test('a node that fails before it admits › fails the job after two attempts, which may be sent again', async t => {
  const node = await harness.addNode(failing('NODE_FAULT'));
  await harness.startReplica();
  t.deepEqual(failureOf(await harness.done()), ['PROCESSING_FAILED', true]);
  t.is(node.headers.length, 2);
  await harness.assertMoneySettled({ charged: 0 });
});

for (const [code, told] of [
  ['INVALID_NODE_TOKEN', 1],
  ['NODE_UNAVAILABLE', 1],
  ['NODE_OVERLOADED', 0],
] as const) {
  test(`a refusal that may pass › ${code} is reported ${told ? 'once' : 'never'} while the job waits`, async t => {
    const nodes: ScriptedNode[] = [];
    for (let count = 0; count < 5; count += 1) nodes.push(await harness.addNode(failing(code)));
    const { lines, logger } = linesLogger<{ level: number; msg: string }>();
    const { observed } = await harness.startReplica({ log: logger });
    const id = await harness.submit();
    await until(() => {
      for (const node of nodes) node.report();
      return requests(nodes).reduce((sum, each) => sum + each, 0) >= 15;
    }, 'fifteen refusals');
    for (const node of nodes) node.script = wellDone;
    t.is((await harness.untilFinal(id)).state, 'succeeded');
    t.is(observed.filter(what => what === 'refused again and again').length, told);
    const warned = lines.some(({ level, msg }) => level >= 40 && msg === 'attempt');
    t.is(warned, told > 0, 'a node without a free place is no fault');
  });
}

test('a refusal that may pass › is not reported of a job that a node admits now and then', async t => {
  const refuse = failing('NODE_UNAVAILABLE');
  const lose: Script = async exchange => {
    exchange.admit();
    exchange.fail('NODE_UNAVAILABLE');
  };
  const six = [refuse, refuse, refuse, refuse, refuse, refuse] as const;
  const script = inTurn(...six, lose, ...six, wellDone);
  const nodes: ScriptedNode[] = [];
  for (let count = 0; count < 4; count += 1) nodes.push(await harness.addNode(script));
  const { observed } = await harness.startReplica();
  const id = await harness.submit();
  await until(async () => {
    for (const node of nodes) node.report();
    return (await harness.job(id)).finishedAtMs !== null;
  }, 'the end of the job');
  t.is((await harness.job(id)).state, 'succeeded');
  t.is(observed.filter(what => what.startsWith('attempt refused')).length, 12);
  t.false(observed.includes('refused again and again'));
});

const LINES = Array.from({ length: HINT_SHAPES_MAX }, () => ({
  line: Array.from({ length: HINT_POINTS_MAX / HINT_SHAPES_MAX }, () => [1, 2] as const),
  radius: 3,
}));
const OTHERS = CAPABILITIES.filter(one => one !== 'hints.many_points');

test('a header over 4096 bytes › goes to a node that takes it, whichever was chosen', async t => {
  const older = await harness.addNode({ info: { capabilities: OTHERS }, imagesMax: 100 });
  const newer = await harness.addNode({ info: { capabilities: [...CAPABILITIES] } });
  await harness.startReplica();
  for (let count = 0; count < 3; count += 1) {
    const job = await harness.done({ job: { hints: { keep: LINES } } });
    t.is(job.state, 'succeeded', job.failure?.detail);
  }
  t.is((await harness.done({ job: { hints: { keep: LINES.slice(0, 4) } } })).state, 'succeeded');
  t.true(newer.headers.length >= 3);
  t.true(older.headers.every(({ hints }) => (hints?.keep.length ?? 0) <= 4));
});

test('a header over 4096 bytes › fails a job while no node takes it, at once where none did lately', async t => {
  const older = await harness.addNode({ info: { capabilities: OTHERS } });
  await harness.startReplica({ noNodeGraceMs: 300 });
  const job = await harness.done({ job: { hints: { erase: LINES } } });
  t.deepEqual(failureOf(job), ['PROCESSING_FAILED', true]);
  t.is(older.headers.length, 0);
  const later = async () => failureOf(await harness.done({ job: { hints: { erase: LINES } } }));
  await until(async () => isDeepStrictEqual(await later(), ['INVALID_PARAMETER', false]));
  await harness.assertMoneySettled({ charged: 0 });
});

test('a header over 4096 bytes › is one with many points, whatever else a job asks for', t => {
  const length = { px: 9999.123456 };
  const finishing: Finishing = {
    region: { left: length, top: length, right: length, bottom: length },
    crop: { top: length, right: length, bottom: length, left: length },
    scalePercent: 99.9,
    position: { xPercent: 33.3, yPercent: 66.6 },
    outputWidth: 10_000,
    outputHeight: 10_000,
    sizeMaxMegapixels: 99.9,
    background: { kind: 'picture' },
    enlarge: false,
    aspectRatio: { width: 99.9, height: 99.9 },
    quality: 99,
    shadow: { opacity: 1.1, blur: 1.1, offsetX: 1.1, offsetY: 1.1 },
  };
  const open = () => Promise.reject(new Error('it is not opened'));
  const file = {
    bytes: BACKGROUND_BYTES_MAX,
    format: 'heic',
    width: 9999,
    height: 9999,
    open,
  } as const;
  const headerWith = (hints: Hints) => {
    const { subjectBox = finishing.region! } = hints;
    const call = callOf(Buffer.alloc(1), {
      ...{ finishing, background: file, matte: true, givenMatte: file, waitMsMax: 4_000_000_000 },
      ...{ jobId: 'j'.repeat(64), attempt: 4_000_000_000, inputBytes: 50_000_000 },
      hints: { ...hints, subjectBox },
      model: { name: 'm'.repeat(64), kind: 'plan', sha256: 'f'.repeat(64) },
    });
    return MatteRequest.encode(headerMessage(call)).finish().length;
  };
  const areMany = (hints: Hints) => capabilitiesOfHints(hints).includes('hints.many_points');
  const boxes = Array.from({ length: HINT_SHAPES_MAX }, () => ({ box: [1, 2, 3, 4] as const }));
  for (const shapes of [
    LINES,
    [LINES.flatMap(({ line }) => line)].map(line => ({ line, radius: 1 })),
  ]) {
    t.true(headerWith({ keep: shapes }) <= HEADER_BYTES_MAX);
    t.true(areMany({ keep: shapes.slice(0, 32), erase: shapes.slice(32) }));
    const few = shapes.map(({ line, radius }) => ({ line: line.slice(0, 2), radius }));
    for (let at = 0; ; at = (at + 1) % few.length) {
      const { line } = few[at]!;
      line.push(line[0]!);
      if (areMany({ erase: few })) break;
      t.true(headerWith({ erase: few }) <= MESSAGE_BYTES_SMALL);
    }
  }
  t.false(areMany({ keep: boxes }));
});
