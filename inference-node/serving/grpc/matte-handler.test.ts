import { Duplex } from 'node:stream';
import { status } from '@grpc/grpc-js';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { CHUNK_BYTES_MAX, IMAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  type GetNodeInfoResponse,
  InputFormat,
  type MatteHeader,
  OutputFormat,
  Priority,
  ResultKind,
  SelectableKind,
  Switch,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { FakeEnginePool, StageGates, TINY_MODEL } from '../test/fake-pools.ts';
import { ownClock } from '../test/own-clock.ts';
import {
  chunk,
  header,
  heldIn,
  MatteCaller,
  openTestNode,
  sha256,
  type TestNode,
  type TestNodeOptions,
  untilIdle,
  untilNothingAdmitted,
} from '../test/test-node.ts';
import { EXCHANGE_BOUNDS, type MatteCall, MatteExchange } from './matte-exchange.ts';
import type { MatteOrder } from './matte-header.ts';

const test = ava.serial;

/** Below the keepalive of server.ts, whose answer is late on a clock that leaps. */
const DEADLINE_MS = 15_000;
const FLOOD_CHUNKS = 5000;
const MESSAGES_PER_TICK_MAX = 64;
const TINY = 'x'.repeat(512);

let node: TestNode;

async function reopen(options: TestNodeOptions): Promise<void> {
  await node.close();
  node = await openTestNode(options);
}

test.beforeEach(async () => {
  node = await openTestNode();
});

test.afterEach.always(() => node.close());

test('a good call › gets its messages in order, and a result whose digest is right', async t => {
  node.pictures.result = Buffer.alloc(2 * CHUNK_BYTES_MAX + 3, 7);
  const caller = await new MatteCaller(node).serve('12345', { sha256: sha256('12345') });
  t.deepEqual(caller.kinds(), ['admitted', 'progress', 'resultHeader', 'chunk', 'done']);
  const { header: result, file } = caller.result();
  t.true(file.equals(node.pictures.result));
  t.is(result?.sizeBytes, file.length);
  t.is(result?.contentType, 'image/png');
  t.deepEqual([result?.width, result?.height], [8, 6]);
  t.is(result?.resultKind, ResultKind.RESULT_KIND_CUTOUT);
  t.is(result?.modelRuns[0]?.executionProvider, 'cpu');
  t.is(result?.modelRuns[0]?.precision, 'fp32');
  t.is(result?.modelRuns[0]?.precisionFallback, '');
  const done = await caller.until('done');
  t.true(done.sha256.equals(sha256(file)));
  const { workerWaitMs, decodeMs, engineWaitMs, inferMs, refineMs, encodeMs } = done.timings!;
  t.deepEqual(
    [workerWaitMs, decodeMs, engineWaitMs, inferMs, refineMs, encodeMs],
    [3, 4, 1, 2, 5, 6],
  );
});

test('a good call › hands format, kind, size and priority on', async t => {
  await new MatteCaller(node).serve('12345', {
    outputFormat: OutputFormat.OUTPUT_FORMAT_WEBP,
    resultKind: ResultKind.RESULT_KIND_MASK,
    priority: Priority.PRIORITY_SYNC,
    model: 'tiny',
  });
  t.is(node.pictures.finished[0]?.outputFormat, 'webp');
  t.is(node.pictures.finished[0]?.resultKind, 'mask');
  t.deepEqual(node.pictures.decoded[0]?.declared, { width: 8, height: 6 });
  t.is(node.engines.runs[0]?.priority, 'sync');
});

test('a good call › is refined and recoloured, unless the header says otherwise', async t => {
  const SWITCHES = { refinement: Switch.SWITCH_OFF, foregroundEstimation: Switch.SWITCH_OFF };
  for (const header of [
    SWITCHES,
    { ...SWITCHES, plan: 'tiny', refinement: Switch.SWITCH_ON },
    {},
  ]) {
    await new MatteCaller(node).serve('12345', header);
  }
  t.deepEqual(
    node.pictures.finished.map(({ refinement, foregroundEstimation }) => [
      refinement,
      foregroundEstimation,
    ]),
    [
      [false, false],
      [true, false],
      [true, true],
    ],
  );
});

test('a good call › names the model that its plan had to do without, in the result and in the metrics', async t => {
  const engines = new FakeEnginePool(new StageGates());
  engines.set({ enginesReady: 0 });
  // By its name alone it would be the subject's.
  const opinion = {
    model: { ...TINY_MODEL, inputWidth: 6, inputHeight: 8 },
    engines,
    role: 'secondLook',
  } as const;
  await reopen({ opinion });
  const caller = await new MatteCaller(node).serve('12345');
  const { header: result } = caller.result();
  t.deepEqual(result?.modelsMissing, ['tiny']);
  t.deepEqual(result?.runsMissing, [
    { model: 'tiny', inputWidth: 6, inputHeight: 8, role: 'second_look' },
  ]);
  t.is(result?.modelRuns.length, 1);
  const degraded = node.metrics.registry.getSingleMetric('matting_node_images_degraded_total');
  const { values } = await degraded!.get();
  const labels = { model: 'tiny', input_size: '6x8', role: 'second_look' };
  t.deepEqual(values, [{ labels, value: 1 }]);
});

test('a good call › of unknown size is declared as nothing and takes the largest permit', async t => {
  const caller = await heldIn(node, 'decode', { width: 0, height: 0 });
  t.true(node.admission.snapshot().megapixels >= 100);
  t.is(node.pictures.decoded[0]?.declared, undefined);
  node.gates.letGo('decode');
  t.is(await caller.ended, undefined);
});

test('a good call › gives its worker back before its result is read', async t => {
  const caller = sendUnread();
  await until('a worker to come back', () => node.pictures.releases > 0);
  t.is(node.pictures.leasesOut, 0);
  t.is(node.admission.snapshot().images, 1);
  t.is(node.pipeline.imagesAt('sending'), 1);
  caller.call.resume();
  t.is(await caller.ended, undefined);
  t.is(caller.result().file.length, node.pictures.result.length);
  await untilNothingAdmitted(node);
});

test('a good call › whose reader takes it too slowly for its size is cut off', async t => {
  await reopen({ bounds: { sendSilenceMaxMs: 250, paceBytesPerSecondMin: 1_000_000_000 } });
  node.pictures.result = Buffer.alloc(16 * 1024 * 1024, 1);
  const caller = new MatteCaller(node);
  // One chunk of 64 at a time, far sooner than silence is over.
  caller.call.on('data', () => {
    caller.call.pause();
    setTimeout(() => caller.call.resume(), 20);
  });
  caller.send(header({ contentLength: 5 }), chunk('12345')).call.end();
  await caller.refused({ code: 'CALL_DEADLINE_EXCEEDED' });
  await t.notThrowsAsync(untilNothingAdmitted(node));
});

test('a good call › whose reader takes nothing is cut off', async t => {
  await reopen({ bounds: { sendSilenceMaxMs: 60 } });
  const caller = sendUnread();
  // The count stays, even if sending ends before the test looks.
  await until('a worker to come back', () => node.pictures.releases > 0);
  await untilIdle(node);
  t.is(node.admission.snapshot().images, 0);
  const sent = await node.metrics.registry.getSingleMetric('matting_node_sent_bytes_total')!.get();
  // Buffers hold little; the rest waits in the result.
  t.true((sent.values[0]?.value ?? Infinity) < node.pictures.result.length / 2);
  caller.call.resume();
  await caller.refused({ code: 'CALL_DEADLINE_EXCEEDED' });
});

/** More than both HTTP/2 windows hold, for a caller who reads nothing. */
function sendUnread(): MatteCaller {
  node.pictures.result = Buffer.alloc(8 * 1024 * 1024, 1);
  const caller = new MatteCaller(node);
  caller.call.pause();
  caller.send(header({ contentLength: 5 }), chunk('12345')).call.end();
  return caller;
}

function nodeInfo(): Promise<GetNodeInfoResponse> {
  return new Promise((resolve, reject) => {
    node.client.getNodeInfo({}, (error, found) => (error ? reject(error) : resolve(found)));
  });
}

test('a result and the node say under what terms each model comes, and which precision it fell back to', async t => {
  const terms = (commercialUse: 'no' | 'unclear') => {
    return { commercialUse, reason: `It says ${commercialUse}.`, source: 'https://example.com/' };
  };
  const [weights, trainingData] = [terms('unclear'), terms('no')];
  const licence = { spdx: 'NOASSERTION', origin: 'https://example.com/', weights, trainingData };
  const precisionFallback = 'this CPU (x64-avx2) has no instruction for int8';
  await reopen({ model: { licence, precisionFallback } });
  const caller = await new MatteCaller(node).serve('12345');
  t.like(caller.result().header?.modelRuns[0], {
    licence: 'NOASSERTION',
    weightsCommercialUse: 'unclear',
    trainingDataCommercialUse: 'no',
    precisionFallback,
    role: 'subject',
  });
  const info = await nodeInfo();
  t.deepEqual(info.models[0]?.licence, { spdx: 'NOASSERTION', weights, trainingData });
  t.is(info.models[0]?.precisionFallback, precisionFallback);
  const kind = SelectableKind.SELECTABLE_KIND_MODEL;
  const runs = [{ model: 'tiny', role: 'subject' }];
  const [selectable] = info.selectable;
  t.like(selectable, { name: 'tiny', kind, default: true, weights, trainingData, runs });
  t.regex(selectable?.sha256 ?? '', /^[0-9a-f]{64}$/);
  t.is(info.commercialUseRequired, '');
  await reopen({ commercialUse: 'strict' });
  t.is((await nodeInfo()).commercialUseRequired, 'strict');
});

test('admission › refuses before a byte is sent, and says that another node may take it', async t => {
  await reopen({ limits: { imagesMax: 1 } });
  const first = await heldIn(node, 'infer');
  const second = new MatteCaller(node).send(header());
  await second.refused({
    code: 'NODE_OVERLOADED',
    status: status.RESOURCE_EXHAUSTED,
    retryable: true,
  });
  t.deepEqual(second.messages, []);
  node.gates.letGo('infer');
  t.is(await first.ended, undefined);
  await new MatteCaller(node).serve('12345');
});

test('admission › tells how long it takes, and refuses what would wait longer than its header allows', async t => {
  const first = await heldIn(node, 'decode');
  // One image waits, 100 ms each in the fake.
  const impatient = new MatteCaller(node).send(header({ waitMsMax: 99 }));
  await impatient.refused({ code: 'NODE_OVERLOADED', status: status.RESOURCE_EXHAUSTED });
  t.deepEqual(impatient.messages, []);
  const patient = await new MatteCaller(node).announce({ waitMsMax: 100 });
  const { queuePosition, estimatedWaitMs } = await patient.until('admitted');
  t.deepEqual([queuePosition, estimatedWaitMs], [1, 100]);
  patient.call.cancel();
  node.gates.letGo('decode');
  await first.ended;
});

test('admission › is closed while no engine is ready, the node drains or starts; what is in is finished', async t => {
  const closed = { code: 'NODE_UNAVAILABLE', status: status.UNAVAILABLE };
  node.engines.set({ enginesReady: 0 });
  await new MatteCaller(node).send(header()).refused(closed);
  node.engines.set({ enginesReady: 1 });
  const first = await heldIn(node, 'infer');
  node.status.drain('shutdown');
  await new MatteCaller(node).send(header()).refused(closed);
  node.gates.letGo('infer');
  t.is(await first.ended, undefined);
  await untilIdle(node);
  await reopen({ starting: true });
  await new MatteCaller(node).send(header()).refused(closed);
});

function assertUntouched(t: ExecutionContext): void {
  t.is(node.admission.snapshot().images, 0);
  t.is(node.pictures.decoded.length, 0);
}

const bad: [string, Partial<MatteHeader>, string][] = [
  ['of no bytes', { contentLength: 0 }, 'INVALID_REQUEST'],
  ['of 50 MB and a byte', { contentLength: IMAGE_BYTES_MAX + 1 }, 'IMAGE_TOO_LARGE'],
  ['with a long job_id', { jobId: 'x'.repeat(65) }, 'INVALID_REQUEST'],
  ['with half a digest', { sha256: Buffer.alloc(16) }, 'INVALID_REQUEST'],
  ['with a width alone', { width: 10, height: 0 }, 'INVALID_REQUEST'],
  ['10001 px wide', { width: 10_001, height: 1 }, 'IMAGE_RESOLUTION_TOO_LARGE'],
  ['of over 100 megapixels', { width: 10_000, height: 10_001 }, 'IMAGE_RESOLUTION_TOO_LARGE'],
  ['of a new output', { outputFormat: 99 as OutputFormat }, 'UNSUPPORTED_OUTPUT_FORMAT'],
  ['of JPEG', { outputFormat: OutputFormat.OUTPUT_FORMAT_JPEG }, 'UNSUPPORTED_OUTPUT_FORMAT'],
  ['of ZIP', { outputFormat: OutputFormat.OUTPUT_FORMAT_ZIP }, 'UNSUPPORTED_OUTPUT_FORMAT'],
  ['of a new input', { inputFormat: 99 as InputFormat }, 'UNSUPPORTED_IMAGE_FORMAT'],
  ['of a new result kind', { resultKind: 99 as ResultKind }, 'INVALID_REQUEST'],
  ['of a new priority', { priority: 99 as Priority }, 'INVALID_REQUEST'],
  ['for a model not here', { model: 'other' }, 'NODE_INCAPABLE'],
  ['for a plan not here', { plan: 'best' }, 'NODE_INCAPABLE'],
  ['for a plan and a model', { plan: 'tiny', model: 'tiny' }, 'INVALID_REQUEST'],
  ['with a switch half way', { refinement: 7 as never }, 'INVALID_REQUEST'],
  ['for JPEG XL in', { inputFormat: InputFormat.INPUT_FORMAT_JXL }, 'NODE_INCAPABLE'],
  ['for JPEG XL out', { outputFormat: OutputFormat.OUTPUT_FORMAT_JXL }, 'NODE_INCAPABLE'],
];
test('a header › that cannot be met is refused by its code, before any byte arrives', async t => {
  for (const [name, fields, code] of bad) {
    const caller = new MatteCaller(node).send(header(fields));
    await t.notThrowsAsync(caller.refused({ code }), name);
    t.deepEqual(caller.messages, [], name);
  }
  assertUntouched(t);
});

test('a header › that does not come first, comes twice or not at all is refused', async t => {
  const late = new MatteCaller(node).send(chunk('bytes'), header());
  const expected = { code: 'INVALID_REQUEST', status: status.INVALID_ARGUMENT, retryable: false };
  await late.refused(expected);
  assertUntouched(t);
  await new MatteCaller(node).send(header(), header()).refused({ code: 'INVALID_REQUEST' });
  const never = new MatteCaller(node);
  never.call.end();
  await never.refused({ code: 'INVALID_REQUEST' });
  await untilNothingAdmitted(node);
});

test('a header › that never comes is not waited for', async t => {
  await reopen({ bounds: { headerWaitMaxMs: 30 } });
  await new MatteCaller(node).refused({ code: 'CALL_DEADLINE_EXCEEDED' });
  await t.notThrowsAsync(untilIdle(node));
});

test('a header › over the JPEG XL size of this node goes to another one', async t => {
  await reopen({
    capabilities: { inputFormats: ['jxl'], outputFormats: ['jxl', 'png'], jxlPixelsMax: 100 },
  });
  const fields = { inputFormat: InputFormat.INPUT_FORMAT_JXL, width: 11, height: 10 };
  await new MatteCaller(node)
    .send(header(fields))
    .refused({ code: 'NODE_INCAPABLE', retryable: true });
  await t.notThrowsAsync(new MatteCaller(node).serve('small', { ...fields, width: 10 }));
});

test('the bytes › too few, too many, of another digest or in too large a chunk are refused', async t => {
  const few = await new MatteCaller(node).announce({ contentLength: 5 });
  few.send(chunk('1234')).call.end();
  await few.refused({ code: 'INVALID_REQUEST', message: /4 of 5 bytes/ });
  const many = await new MatteCaller(node).announce({ contentLength: 5 });
  many.send(chunk('1234'), chunk('56'));
  await many.refused({ code: 'INVALID_REQUEST' });
  const others = await new MatteCaller(node).sendFile('12345', { sha256: sha256('54321') });
  await others.refused({ code: 'INVALID_REQUEST', message: /sha256/ });
  const contentLength = CHUNK_BYTES_MAX + 1;
  const large = new MatteCaller(node).send(header({ contentLength }));
  large.send(chunk(Buffer.alloc(contentLength)));
  await large.refused({ code: 'INVALID_REQUEST' });
  await untilNothingAdmitted(node);
  t.is(node.pictures.decoded.length, 0);
});

test('the bytes › that stop coming end the call and free its permit', async t => {
  await reopen({ bounds: { receiveSilenceMaxMs: 40 } });
  await new MatteCaller(node)
    .send(header({ contentLength: 5 }), chunk('12'))
    .refused({ code: 'CALL_DEADLINE_EXCEEDED' });
  await t.notThrowsAsync(untilNothingAdmitted(node));
});

for (const [name, bounds] of [
  ['trickle', { receiveSilenceMaxMs: 10_000, receiveMaxMs: 60 }],
  ['come too slowly for their number', { receiveSilenceMaxMs: 300, paceBytesPerSecondMin: 1e7 }],
] as const) {
  test(`the bytes › that ${name} end the call as a whole`, async t => {
    await reopen({ bounds });
    const caller = await new MatteCaller(node).announce({ contentLength: 100_000 });
    const trickle = setInterval(() => caller.send(chunk('1')), 5);
    await caller.refused({ code: 'CALL_DEADLINE_EXCEEDED' });
    clearInterval(trickle);
    await t.notThrowsAsync(untilNothingAdmitted(node));
  });
}

test('the bytes › reach the decoder whole and in order', async t => {
  const data = Buffer.from(Array.from({ length: 3 * CHUNK_BYTES_MAX + 7 }, (_, i) => i % 251));
  const caller = new MatteCaller(node);
  caller.send(header({ contentLength: data.length, sha256: sha256(data) }));
  await caller.until('admitted');
  for (let offset = 0; offset < data.length; offset += CHUNK_BYTES_MAX) {
    caller.send(chunk(data.subarray(offset, offset + CHUNK_BYTES_MAX)));
  }
  caller.call.end();
  t.is(await caller.ended, undefined);
  t.truthy(node.pictures.decoded[0]?.file.equals(data));
});

for (const stage of ['acquire', 'decode', 'infer', 'finish'] as const) {
  test(`a caller that goes away › whose deadline passes in ${stage} frees them too, and no later stage begins`, async t => {
    const clock = ownClock(t, { measured: true });
    node.gates.hold(stage);
    const caller = await new MatteCaller(node, { deadlineMs: DEADLINE_MS }).sendFile('12345');
    await node.gates.reached(stage);
    // In one leap the caller's end would come before the node's clock moves.
    for (let step = 0; step < 10; step++) await clock.tickAsync(DEADLINE_MS / 10);
    await caller.refused({ status: status.DEADLINE_EXCEEDED });
    await untilIdle(node);
    t.is(node.admission.snapshot().images, 0);
    t.is(node.pictures.leasesOut, 0);
    const begun = [node.pictures.decoded, node.engines.runs, node.pictures.finished];
    const last = ['acquire', 'decode', 'infer', 'finish'].indexOf(stage);
    t.deepEqual(
      begun.map(images => images.length > 0),
      [last >= 1, last >= 2, last >= 3],
    );
    const images = node.metrics.registry.getSingleMetric('matting_node_images_total');
    const counted = (await images!.get()).values.filter(({ value }) => value > 0);
    const code = 'CALL_DEADLINE_EXCEEDED';
    t.deepEqual(
      counted.map(({ labels }) => labels),
      [{ outcome: 'cancelled', code, output_format: 'png' }],
    );
  });
}

test('a caller that goes away › while its bytes are coming or its result is sent frees its permit', async t => {
  const caller = new MatteCaller(node).send(header({ contentLength: 5 }), chunk('12'));
  await caller.until('admitted');
  caller.call.cancel();
  await untilIdle(node);
  t.is(node.admission.snapshot().images, 0);
  const unread = sendUnread();
  await until('a result that is sent', () => node.pipeline.imagesAt('sending') > 0);
  unread.call.cancel();
  await untilIdle(node);
  t.is(node.admission.snapshot().images, 0);
});

const faults: [string, unknown, string, number][] = [
  ['of the image', new ContractError('PROCESSING_FAILED', 'broken'), 'PROCESSING_FAILED', 3],
  ['of an engine', new ContractError('ENGINE_LOST', 'died'), 'ENGINE_LOST', 10],
  ['unknown', new Error('a path /secret/of/the/machine'), 'NODE_FAULT', 13],
];
test('an error of a stage › goes out by its code, without its secrets, and frees everything', async t => {
  const cases = faults.flatMap(fault =>
    (['acquire', 'decode', 'infer', 'finish'] as const).map(stage => [stage, ...fault] as const),
  );
  for (const [stage, fault, error, code, number] of cases) {
    const name = `${fault} in ${stage}`;
    node.gates.failOnce(stage, error);
    const caller = await new MatteCaller(node).sendFile('12345');
    const expected = { code, status: number, message: /^(?!.*secret)/ };
    await t.notThrowsAsync(caller.refused(expected), name);
    await untilNothingAdmitted(node);
    t.is(node.pictures.leasesOut, 0, name);
  }
});

test('an error of a stage › leaves the codec’s message in the log, and out of the status', async t => {
  const lines: Record<string, unknown>[] = [];
  const log = pino({}, { write: line => lines.push(JSON.parse(line)) });
  await reopen({ log });
  const cause = 'premature end of JPEG image';
  node.gates.failOnce('decode', new ContractError('PROCESSING_FAILED', 'damaged', { cause }));
  const caller = await new MatteCaller(node).sendFile('12345', { jobId: 'job-7' });
  await caller.refused({ message: /^damaged$/ });
  const line = lines.find(({ msg }) => msg === 'image failed');
  t.is(line?.reason, cause);
  t.is(line?.jobId, 'job-7');
});

test('an error of a stage › with half a surrogate pair in its text still ends the call', async t => {
  node.gates.failOnce('decode', new ContractError('PROCESSING_FAILED', 'odd \ud800 text'));
  const caller = await new MatteCaller(node).sendFile('12345');
  await t.notThrowsAsync(caller.refused({ code: 'PROCESSING_FAILED' }));
});

test('a file in more chunks than its bytes are worth is refused', async t => {
  const caller = await new MatteCaller(node).announce({ contentLength: 4096 });
  for (let sent = 0; sent < 4096; sent += 1) caller.send(chunk('x'));
  await t.notThrowsAsync(caller.refused({ code: 'INVALID_REQUEST', message: /512 bytes/ }));
});

test('a flood of tiny chunks leaves ticks of the event loop to the others', async t => {
  let left = FLOOD_CHUNKS;
  const call = new Duplex({
    objectMode: true,
    // All chunks are available at once, as after one read from the network.
    read() {
      this.push(left-- > 0 ? chunk(TINY) : null);
    },
    write: (_message, _encoding, done) => done(),
  });
  const exchange = new MatteExchange(call as unknown as MatteCall, EXCHANGE_BOUNDS);
  const order = { contentLength: FLOOD_CHUNKS * TINY.length, sha256: undefined } as MatteOrder;
  let turns = 0;
  let counting = true;
  const count = () => {
    turns += 1;
    if (counting) setImmediate(count);
  };
  setImmediate(count);
  const { image: file } = await exchange.forOrder(order).receive(new AbortController().signal);
  counting = false;
  t.is(file.length, FLOOD_CHUNKS * TINY.length);
  t.true(
    turns >= FLOOD_CHUNKS / MESSAGES_PER_TICK_MAX / 2,
    `${turns} turns for ${FLOOD_CHUNKS} chunks`,
  );
});
