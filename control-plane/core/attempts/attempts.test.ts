import assert from 'node:assert/strict';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import {
  cutOutAfter,
  cutOutOf,
  inTurn,
  type Script,
} from '@matting/nodes/test/scripted-exchange.ts';
import { CAPABILITIES } from '@matting/proto/contract/capabilities.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { InputFormat } from '@matting/proto/contract/formats.ts';
import {
  type GetNodeInfoResponse,
  NodeLimits,
  OutputFormat,
  InputFormat as ProtoInput,
  type ResultHeader,
  ResultKind,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { type BlobStore, unwritable } from '@matting/storage/blob-store.ts';
import { put } from '@matting/storage/test/blob-store.contract.ts';
import ava from 'ava';
import { backgroundBlob, hintsBlob } from '../jobs/blob-names.ts';
import type { NewJob } from '../queue/matting-submission.ts';
import { WITH_PICTURE } from '../test/fixtures.ts';
import {
  aborted,
  failureOf,
  fetcherOf,
  type ReplicaOptions,
  until,
  useHarness,
} from '../test/harness.ts';
import type { SourceFetcher } from './downloads.ts';

const test = ava.serial;

const harness = useHarness(test);

const wellDone: Script = exchange => exchange.cutOut();

function admitThen(then: (exchange: Parameters<Script>[0]) => void | Promise<void>): Script {
  return async exchange => {
    exchange.admit();
    await exchange.receive();
    await then(exchange);
  };
}

function storageSaying(stat: BlobStore['stat']): BlobStore {
  return harness.storageWith({ stat });
}

const withSum =
  (sha256: string): BlobStore['stat'] =>
  async name => {
    const found = await harness.blobs.stat(name);
    return found && { ...found, sha256 };
  };
const lyingStores: readonly (readonly [string, () => BlobStore])[] = [
  ['has nothing of it', () => storageSaying(async () => undefined)],
  ['has another length', () => storageSaying(async () => ({ bytes: 7 }))],
  ['has another checksum', () => storageSaying(withSum('00'.repeat(32)))],
];
for (const [what, storage] of lyingStores) {
  test(`a result › is not charged if the storage took it and ${what}`, async t => {
    await harness.addNode(wellDone);
    await harness.startReplica({ blobs: storage() });
    const job = await harness.done();
    t.deepEqual(failureOf(job), ['PROCESSING_FAILED', true]);
    await harness.assertMoneySettled({ charged: 0 });
    t.deepEqual(await harness.blobNames(), []);
  });
}

test('a result › is charged if the storage shows the checksum of the received bytes', async t => {
  const picture = randomBytes(1000);
  await harness.addNode(wellDone);
  const sha256 = createHash('sha256').update(cutOutOf(picture)).digest('hex');
  await harness.startReplica({ blobs: storageSaying(withSum(sha256)) });
  const job = await harness.done({ bytes: picture });
  t.is(job.state, 'succeeded', job.failure?.detail);
  await harness.assertMoneySettled({ charged: 1 });
});

/** Refuses this many files whose names begin with `kind`. */
function fullStorage(kind: string, times: number): { blobs: BlobStore; refused: () => number } {
  let refused = 0;
  const blobs = harness.storageWith({
    createWriter: async name => {
      if (name.startsWith(kind) && refused < times) {
        refused += 1;
        throw unwritable(Object.assign(new Error('no room'), { code: 'ENOSPC' }));
      }
      return harness.blobs.createWriter(name);
    },
  });
  return { blobs, refused: () => refused };
}

test('a full storage › makes a job wait for room: for its result, or for its image by a URL', async t => {
  await harness.addNode(wellDone);
  for (const [kind, options] of [
    ['results', {}],
    ['inputs', { url: 'https://pictures.example/a' }],
  ] as const) {
    const { blobs, refused } = fullStorage(kind, 1);
    const fetcher: SourceFetcher = {
      async fetchImage(_url, { writer }) {
        await writer.write(Buffer.from('a picture'));
        return { bytes: 9, header: { format: 'png', width: 1, height: 1, animated: false } };
      },
    };
    await harness.startReplica({ blobs, fetcher, holder: kind });
    const job = await harness.done(options);
    t.is(job.state, 'succeeded', job.failure?.detail);
    t.is(refused(), 1);
    t.is(job.lostAttempts, 0);
    await harness.replicas.at(-1)!.dispatcher.stop(1000);
  }
  await harness.assertMoneySettled({ charged: 2 });
});

test('a full storage › is named by a job that met it until its time was over', async t => {
  await harness.addNode(wellDone);
  const { blobs, refused } = fullStorage('results', Number.POSITIVE_INFINITY);
  const { dispatcher } = await harness.startReplica({ blobs });
  const id = await harness.submit();
  await until(() => refused() > 0, 'the full storage');
  const { kysely } = await harness.database.open();
  await kysely.updateTable('jobs').set({ created_at: 1 }).where('id', '=', id).execute();
  const { failure } = await harness.untilFinal(id);
  t.deepEqual([failure?.code, failure?.retryable], ['PROCESSING_FAILED', true]);
  t.regex(failure?.detail ?? '', /storage .* full/);
  t.true(refused() < 4, 'it waits between attempts');
  await dispatcher.stop(1000);
  await harness.assertMoneySettled({ charged: 0 });
});

test('an attempt on a node › lost with an engine once is tried again and succeeds', async t => {
  await harness.addNode(
    inTurn(
      admitThen(exchange => exchange.fail('ENGINE_LOST')),
      wellDone,
    ),
  );
  await harness.startReplica();
  const job = await harness.done();
  t.is(job.state, 'succeeded');
  t.deepEqual([job.lostAttempts, job.lostWithProcess], [1, 1]);
  await harness.assertMoneySettled({ charged: 1 });
});

test('an attempt on a node › lost with a process twice fails the job for good, and the third node is spared', async t => {
  const killer = admitThen(exchange => exchange.fail('PICTURE_WORKER_LOST'));
  const nodes = [
    await harness.addNode(killer),
    await harness.addNode(killer),
    await harness.addNode(killer),
  ];
  await harness.startReplica();
  const job = await harness.done();
  t.deepEqual(failureOf(job), ['PROCESSING_FAILED', false]);
  t.is(nodes.filter(node => node.headers.length > 0).length, 2, 'two different nodes');
  await harness.assertMoneySettled({ charged: 0 });
  t.deepEqual(await harness.blobNames(), []);
});

test('an attempt on a node › lost with its node three times fails the job, which may be sent again', async t => {
  const node = await harness.addNode();
  // The connection breaks during the admitted upload, each time.
  node.script = admitThen(async () => {
    await node.down();
    await node.up();
  });
  await harness.startReplica();
  const job = await harness.done();
  t.deepEqual(failureOf(job), ['PROCESSING_FAILED', true]);
  t.deepEqual([job.lostAttempts, job.lostWithProcess], [3, 0]);
  t.is(job.idempotencyKeyHash, null, 'the key is free again');
  await harness.assertMoneySettled({ charged: 0 });
});

test('an attempt on a node › whose node hangs is cut off at the limit and tried elsewhere', async t => {
  // Its reported room makes it the first choice on any tie.
  const hanging = await harness.addNode({
    script: admitThen(exchange => exchange.cancelled),
    imagesMax: 3,
  });
  const well = await harness.addNode();
  await harness.startReplica({ attemptTimeoutMs: 1000 });
  const job = await harness.done();
  t.is(job.state, 'succeeded');
  t.is(job.lostAttempts, 1);
  t.deepEqual([hanging.headers.length, well.headers.length], [1, 1]);
});

const overloaded: Script = async exchange => exchange.fail('NODE_OVERLOADED');
for (const [when, script] of [
  ['for now', overloaded],
  ['for now once it is admitted', admitThen(overloaded)],
] as const) {
  test(`an attempt on a node › refused ${when} goes to another node at once and counts nothing`, async t => {
    // Its reported room makes it the first choice on any tie.
    const full = await harness.addNode({ script, imagesMax: 3 });
    const well = await harness.addNode();
    const { observed } = await harness.startReplica();
    const job = await harness.done();
    t.is(job.state, 'succeeded');
    t.is(job.lostAttempts, 0);
    t.deepEqual([full.headers.length, well.headers.length], [1, 1]);
    t.true(observed.includes('attempt refused NODE_OVERLOADED'));
  });
}

test('an attempt on a node › refused everywhere waits, keeps no lease, and is done when a node has room', async t => {
  const node = await harness.addNode(async exchange => exchange.fail('NODE_UNAVAILABLE'));
  await harness.startReplica();
  const jobId = await harness.submit();
  await until(() => node.headers.length >= 2, 'a second try');
  await until(async () => (await harness.job(jobId)).lease === null, 'no lease');
  t.is((await harness.job(jobId)).startedAtMs, null);
  node.script = wellDone;
  const job = await harness.untilFinal(jobId);
  t.is(job.state, 'succeeded');
});

test('an attempt on a node › that finds the image at fault fails the job with that code, once', async t => {
  const node = await harness.addNode(
    admitThen(exchange => exchange.fail('IMAGE_RESOLUTION_TOO_LARGE')),
  );
  await harness.startReplica();
  const job = await harness.done();
  t.deepEqual(failureOf(job), ['IMAGE_RESOLUTION_TOO_LARGE', false]);
  t.is(node.headers.length, 1);
  await harness.assertMoneySettled({ charged: 0 });
});

test("an attempt on a node › that is the node's own fault is tried once elsewhere", async t => {
  const faulty: Script = admitThen(exchange => exchange.fail('NODE_FAULT'));
  const first = await harness.addNode(faulty);
  const second = await harness.addNode(faulty);
  await harness.startReplica();
  const failed = await harness.done();
  t.is(failed.failure?.code, 'PROCESSING_FAILED');
  t.deepEqual([first.headers.length, second.headers.length], [1, 1]);
  t.is(failed.lostAttempts, 0);
  second.script = wellDone;
  first.script = wellDone;
  t.is((await harness.done()).state, 'succeeded');
});

test('an attempt on a node › that fails again and again takes its node out, and the jobs succeed elsewhere', async t => {
  const faulty = await harness.addNode(admitThen(exchange => exchange.fail('NODE_FAULT')));
  // Reported as slower, so that the faulty one is the first choice.
  const well = await harness.addNode({ load: () => ({ inferMs: 1000 }) });
  const { fleet } = await harness.startReplica();
  for (let sent = 0; sent < 8; sent += 1) {
    const job = await harness.done();
    t.is(job.state, 'succeeded');
    t.is(job.lostAttempts, 0, 'a fault of the node counts against no job');
  }
  t.is(faulty.headers.length, 5);
  t.is(well.headers.length, 8);
  const ejected = fleet.snapshots().filter(node => node.ejectedUntilMs > performance.now());
  t.deepEqual(
    ejected.map(({ nodeId }) => nodeId),
    [faulty.nodeId],
  );
  await harness.assertMoneySettled({ charged: 8 });
});

test('an attempt on a node › whose input is read wrong is repeated once, and no more', async t => {
  for (const [faults, state] of [
    [1, 'succeeded'],
    [2, 'failed'],
  ] as const) {
    let reads = 0;
    const { blobs } = harness;
    const faulty = {
      ...storageSaying(name => blobs.stat(name)),
      openRead: async (name: string) => {
        reads += 1;
        if (reads > faults) return await blobs.openRead(name);
        return Readable.from(
          (async function* () {
            yield Buffer.from('half of');
            throw new Error(`${name} is not what was written: its SHA-256 differs`);
          })(),
        );
      },
    };
    await harness.addNode(wellDone);
    const replica = await harness.startReplica({ blobs: faulty });
    const job = await harness.done();
    t.deepEqual([job.state, reads], [state, 2]);
    if (state === 'failed') t.true(job.failure?.retryable);
    await harness.assertMoneySettled({ charged: 1 });
    await replica.dispatcher.stop(0);
  }
});

test('an attempt on a node › whose input is gone from the storage fails the job, with a retry allowed', async t => {
  const node = await harness.addNode();
  await harness.startReplica();
  node.enginesReady = 0;
  node.report();
  await until(() => harness.replicas[0]?.fleet.snapshots()[0]?.enginesReady === 0);
  const jobId = await harness.submit();
  await harness.blobs.remove(`inputs/${jobId}`);
  node.enginesReady = 1;
  node.report();
  const job = await harness.untilFinal(jobId);
  t.deepEqual(failureOf(job), ['PROCESSING_FAILED', true]);
  t.is(job.lostAttempts, 0);
});

const broken: Record<string, Script> = {
  'with a wrong checksum': admitThen(exchange => {
    exchange.announce(Buffer.from('abc'));
    exchange.send(Buffer.from('abc'));
    exchange.done(Buffer.alloc(32));
    exchange.end();
  }),
  'shorter than announced': admitThen(exchange => {
    exchange.announce(Buffer.from('abc'), { sizeBytes: 4 });
    exchange.send(Buffer.from('abc'));
    exchange.done(Buffer.alloc(32));
    exchange.end();
  }),
  'longer than announced': admitThen(exchange => {
    exchange.announce(Buffer.from('abc'), { sizeBytes: 2 });
    exchange.send(Buffer.from('abc'));
    exchange.end();
  }),
  'of another format': admitThen(exchange => {
    exchange.announce(Buffer.from('abc'), { format: OutputFormat.OUTPUT_FORMAT_WEBP });
    exchange.end();
  }),
  'that never comes': admitThen(exchange => exchange.end()),
  'before Admitted': async exchange => {
    exchange.announce(Buffer.from('abc'));
    exchange.end();
  },
};
for (const [what, script] of Object.entries(broken)) {
  test(`a result › ${what} is never stored, and another attempt succeeds`, async t => {
    await harness.addNode(inTurn(script, wellDone));
    await harness.startReplica();
    const bytes = randomBytes(1000);
    const job = await harness.done({ bytes });
    t.deepEqual(await harness.resultOf(job), cutOutOf(bytes));
    t.deepEqual(await harness.blobNames(), [job.result?.blob]);
  });
}

test('a result › of two megabytes arrives whole, with its facts', async t => {
  await harness.addNode();
  const replica = await harness.startReplica();
  const bytes = randomBytes(2 * 1024 * 1024);
  const jobId = await harness.submit({ bytes });
  const told = new Promise<void>(resolve => replica.events.onFinal(jobId, resolve));
  await told;
  const job = await harness.job(jobId);
  t.is(job.state, 'succeeded', 'visible when it is told of');
  const expected = cutOutOf(bytes);
  t.true((await harness.resultOf(job)).equals(expected));
  t.is(job.result?.bytes, expected.length);
  t.deepEqual([job.result?.width, job.result?.height], [10, 10]);
  t.is(job.timings?.infer, 3);
  t.is(job.result?.blob, `results/${jobId}-${job.fence}`);
  t.deepEqual(await harness.blobNames(), [job.result?.blob], 'the input is erased');
});

const FINISHES: Partial<GetNodeInfoResponse> = {
  outputFormats: [
    OutputFormat.OUTPUT_FORMAT_PNG,
    OutputFormat.OUTPUT_FORMAT_WEBP,
    OutputFormat.OUTPUT_FORMAT_JPEG,
  ],
};
const WHITE_JPEG = {
  outputFormat: 'jpeg',
  finishing: { scalePercent: 85, background: { kind: 'colour', rgba: 0xffffffff } },
} as const satisfies Partial<NewJob>;
const IMAGE_URL = 'https://images.example/image.png';
const BACKGROUND = 'https://backgrounds.example/background.png';

let fetched: string[];

test.beforeEach(() => {
  fetched = [];
});

const joined = (script?: Script) => harness.addNode({ info: FINISHES, ...(script && { script }) });

async function submitWithFile(bytes: string): Promise<string> {
  const id = randomUUID();
  const blob = backgroundBlob(id);
  await put(harness.blobs, blob, bytes);
  const input = { blob, bytes: bytes.length, format: 'jpeg', width: 30, height: 20 } as const;
  return harness.submit({ job: { ...WITH_PICTURE, background: { url: null, input } } });
}

const withUrl = (url = BACKGROUND) => ({ ...WITH_PICTURE, background: { url, input: null } });

/** Answers with the URL's text; for `held`, only after `letGo`. */
function fetcher(held: string | undefined = undefined, letGo = Promise.resolve()) {
  return fetcherOf(async (url, { signal, kind }) => {
    fetched.push(`${kind} ${url}`);
    if (url === held) await Promise.race([letGo, aborted(signal)]);
  });
}

/** Shortly after the job is final. */
async function untilLeft(names: readonly (string | undefined)[]): Promise<void> {
  const isLeft = async () => isDeepStrictEqual(await harness.blobNames(), names);
  await until(isLeft, `nothing left but ${names}`);
}

test('a job with hints › goes with their file behind its image to a node that applies them, and leaves nothing', async t => {
  let received: Buffer = Buffer.alloc(0);
  const older = await joined();
  const node = await harness.addNode({
    info: { ...FINISHES, capabilities: [...CAPABILITIES] },
    script: async exchange => {
      exchange.admit();
      received = await exchange.receive();
      exchange.answer(received);
    },
  });
  const id = randomUUID();
  const blob = hintsBlob(id);
  await put(harness.blobs, blob, 'hints');
  const hintsFile = { blob, bytes: 5, format: 'png', width: 30, height: 20 } as const;
  await harness.startReplica();
  const fields = { hints: { picture: true }, hintsFile } as const;
  const job = await harness.untilFinal(await harness.submit({ job: fields }));
  t.is(job.state, 'succeeded', job.failure?.detail);
  t.deepEqual([older.headers.length, node.headers.length], [0, 1]);
  t.is(node.headers[0]?.hints?.picture?.contentLength, 5);
  t.regex(received.toString(), /^picture of .*hints$/);
  t.deepEqual([job.hints, job.hintsFile], [null, null]);
  await untilLeft([job.result?.blob]);
});

test('a job with hints › that a node does not apply goes to another one', async t => {
  const script: Script = async exchange => {
    exchange.admit();
    exchange.answer(await exchange.receive(), { hints: false });
  };
  const liar = await harness.addNode({
    info: { ...FINISHES, capabilities: [...CAPABILITIES] },
    script,
  });
  await harness.startReplica();
  const id = await harness.submit({ job: { hints: { erase: [{ box: [0, 0, 4, 3] }] } } });
  await until(() => liar.headers.length > 0, 'the first attempt');
  const honest = await harness.addNode({ info: { ...FINISHES, capabilities: [...CAPABILITIES] } });
  const job = await harness.untilFinal(id);
  t.is(job.state, 'succeeded', job.failure?.detail);
  t.is(honest.headers[0]?.hints?.erase.length, 1);
});

test('a job with finishing › goes to a node with its background behind its image', async t => {
  let received: Buffer = Buffer.alloc(0);
  const box = { left: 1, top: 2, width: 3, height: 4 };
  const node = await joined(async exchange => {
    exchange.admit();
    received = await exchange.receive();
    const seen = { inputBox: box, resultBox: { ...box, left: 0 }, share: 0.25 };
    const subject = { ...seen, cutOff: true, unsure: false };
    exchange.answer(received, { inputWidth: 10, inputHeight: 9, subject });
  });
  await harness.startReplica();
  const job = await harness.untilFinal(await submitWithFile('a background'));
  t.is(job.state, 'succeeded', job.failure?.detail);
  t.is(node.headers.length, 1);
  t.regex(received.toString(), /^picture of .*a background$/);
  const background = node.headers[0]?.finishing?.background;
  assert.ok(background?.$case === 'backgroundPicture');
  const { contentLength, width, height } = background.value;
  t.deepEqual([contentLength, width, height], [12, 30, 20]);
  t.deepEqual(job.result?.sight, {
    inputWidth: 10,
    inputHeight: 9,
    subject: { inputBox: box, resultBox: { ...box, left: 0 }, share: 0.25, cutOff: true },
  });
  await untilLeft([job.result?.blob]);
  await harness.assertMoneySettled({ charged: 1 });
});

for (const { asks, sees, ends } of [
  { asks: 'fail', sees: 'nothing', ends: 'NO_SUBJECT' },
  { asks: 'fail', sees: 'a subject', ends: undefined },
  // A node of 0.1.0.
  { asks: 'fail', sees: 'not said', ends: undefined },
  { asks: undefined, sees: 'nothing', ends: undefined },
] as const) {
  test(`a picture without a visible subject › asked to ${asks}, ${sees}: ${ends ?? 'a result'}`, async t => {
    await joined(async exchange => {
      exchange.admit();
      const input = sees === 'not said' ? {} : { inputWidth: 10, inputHeight: 9 };
      const box = { left: 1, top: 2, width: 3, height: 4 };
      const seen = { inputBox: box, resultBox: box, share: 0.1, cutOff: false, unsure: false };
      const subject = sees === 'a subject' ? seen : undefined;
      exchange.answer(await exchange.receive(), { ...input, subject });
    });
    await harness.startReplica();
    const job = await harness.untilFinal(await harness.submit({ job: { noSubject: asks } }));
    t.is(job.failure?.code, ends);
    t.is(job.failure?.retryable ?? false, false);
    t.is(job.idempotencyKeyHash === null, false, 'its key is remembered');
    await untilLeft(ends === undefined ? [job.result?.blob] : []);
    await harness.assertMoneySettled({ charged: ends === undefined ? 1 : 0 });
  });
}

test('a job with finishing › names its format and kind, and sends empty fields to get the echo', async t => {
  const node = await joined();
  await harness.startReplica();
  const jpeg = await harness.done({ job: WHITE_JPEG });
  t.is(jpeg.result?.format, 'jpeg');
  const alpha = { channels: 'alpha', finishing: {} } as const;
  await harness.done({ job: alpha });
  const [first, second] = node.headers;
  t.is(first?.outputFormat, OutputFormat.OUTPUT_FORMAT_JPEG);
  t.is(first?.finishing?.scalePercent, 85);
  t.is(second?.resultKind, ResultKind.RESULT_KIND_MASK);
  t.true(second?.finishing !== undefined && second.finishing.background === undefined);
});

test('a job with finishing › counts as large as its frame', async t => {
  const gate = Promise.withResolvers<void>();
  await joined(cutOutAfter(gate.promise));
  const { fleet } = await harness.startReplica();
  const finishing = { outputWidth: 5000, outputHeight: 6000 };
  const id = await harness.submit({ job: { finishing } });
  // 30 MP of PNG at 8 bytes a pixel; a megapixel of a node's room stands for 42.
  const free = () => fleet.snapshots()[0]?.megapixelsFree ?? 0;
  await until(() => Math.abs(1000 - (30 * 8) / 42 - free()) < 1e-6, 'the room of its frame');
  gate.resolve();
  await t.notThrowsAsync(harness.untilFinal(id));
});

const LIES: readonly [what: string, changes: Partial<ResultHeader>][] = [
  ['does not repeat it', { finishing: undefined }],
  ['makes another kind', { resultKind: ResultKind.RESULT_KIND_MASK }],
  ['makes another format', { format: OutputFormat.OUTPUT_FORMAT_PNG }],
];

for (const [what, changes] of LIES) {
  test(`an incomplete answer › from a node that ${what} is dropped, and another node does the job`, async t => {
    const liar = await joined(exchange => exchange.cutOut(changes));
    const { observed } = await harness.startReplica();
    const id = await harness.submit({ job: WHITE_JPEG });
    await until(() => observed.includes('attempt refused NODE_INCAPABLE'), 'the refusal');
    t.is((await harness.job(id)).lostAttempts, 0);
    await joined();
    const job = await harness.untilFinal(id);
    t.is(job.state, 'succeeded', job.failure?.detail);
    t.is(liar.headers.length, 1);
    await harness.assertMoneySettled({ charged: 1 });
  });
}

test('an incomplete answer › that lacks a step is dropped', async t => {
  const liar = await joined(async exchange => {
    const { finishing } = exchange.header;
    assert.ok(finishing);
    await exchange.cutOut({ finishing: { ...finishing, scalePercent: 0 } });
  });
  await harness.startReplica({ noNodeGraceMs: 100 });
  const { failure } = await harness.done({ job: WHITE_JPEG });
  t.deepEqual([failure?.code, failure?.retryable], ['PROCESSING_FAILED', true]);
  t.is(liar.headers.length, 1);
  await harness.assertMoneySettled({ charged: 0 });
});

test('a background by its URL › is downloaded after the image, and goes to the node behind it', async t => {
  await joined();
  await harness.startReplica({ fetcher: fetcher() });
  const job = await harness.done({ url: IMAGE_URL, job: withUrl() });
  t.deepEqual(fetched, [`image ${IMAGE_URL}`, `background ${BACKGROUND}`]);
  const both = Buffer.from(`${IMAGE_URL}${BACKGROUND}`);
  t.deepEqual(await harness.resultOf(job), cutOutOf(both));
  await untilLeft([job.result?.blob]);
  t.deepEqual([job.takeovers, job.background], [0, null]);
});

test('a background by its URL › alone is downloaded again if a replica dies between the two downloads', async t => {
  await joined();
  const first = await harness.startReplica({
    fetcher: fetcher(BACKGROUND, Promise.withResolvers<void>().promise),
  });
  const id = await harness.submit({ url: IMAGE_URL, job: withUrl() });
  await until(() => fetched.length === 2, 'the download of the background');
  first.dispatcher.hurry();
  await first.dispatcher.stop(0);
  await harness.startReplica({ fetcher: fetcher(), holder: 'other' });
  const job = await harness.untilFinal(id);
  const background = `background ${BACKGROUND}`;
  t.deepEqual(fetched, [`image ${IMAGE_URL}`, background, background]);
  const both = Buffer.from(`${IMAGE_URL}${BACKGROUND}`);
  t.deepEqual(await harness.resultOf(job), cutOutOf(both));
  await harness.assertMoneySettled({ charged: 1 });
});

test('a background by its URL › that cannot be had ends the job, costs nothing and leaves nothing', async t => {
  await joined();
  await harness.startReplica({
    fetcher: fetcherOf((_url, { kind }) => {
      if (kind === 'image') return;
      throw new ContractError('IMAGE_DOWNLOAD_FAILED', 'gone', { retryable: true });
    }),
  });
  const job = await harness.done({ url: IMAGE_URL, job: withUrl() });
  t.deepEqual(failureOf(job), ['IMAGE_DOWNLOAD_FAILED', true]);
  t.is(job.startedAtMs, null);
  await untilLeft([]);
  await harness.assertMoneySettled({ charged: 0 });
});

test('an image by its URL that the fields make too large › fails the job by the name of the field, without a node', async t => {
  const node = await joined();
  await harness.startReplica({ fetcher: fetcher() });
  const { finishing } = WITH_PICTURE;
  const fields = { ...withUrl(), finishing: { ...finishing, outputHeight: 10_000 } };
  const job = await harness.done({ url: IMAGE_URL, job: fields });
  t.deepEqual(failureOf(job), ['INVALID_PARAMETER', false]);
  t.deepEqual(fetched, [`image ${IMAGE_URL}`], 'and its background is not downloaded');
  t.regex(job.failure?.detail ?? '', /^output_height makes a frame of \d+ pixels/);
  t.deepEqual([node.headers.length, job.startedAtMs], [0, null]);
  await untilLeft([]);
  await harness.assertMoneySettled({ charged: 0 });
});

const NO_FIRST_GRACE = { noNodeGraceMs: 1 };

const LIMITS = NodeLimits.create({
  imagePixelsMax: 100_000_000,
  jxlPixelsMax: 40_000_000,
  megapixelsMax: 100,
  megapixelsAloneMax: 1000,
  imagesMax: 2,
});
const READS_AVIF: Partial<GetNodeInfoResponse> = {
  inputFormats: [ProtoInput.INPUT_FORMAT_PNG, ProtoInput.INPUT_FORMAT_AVIF],
};
const WRITES_JXL: Partial<GetNodeInfoResponse> = {
  limits: LIMITS,
  outputFormats: [OutputFormat.OUTPUT_FORMAT_PNG, OutputFormat.OUTPUT_FORMAT_JXL],
};

const joinedWith = (info: Partial<GetNodeInfoResponse> = {}, script?: Script) =>
  harness.addNode({ info, ...(script && { script }) });

const fetcherOfHeader = (format: InputFormat, width = 5, height = 4) =>
  fetcherOf(undefined, { format, width, height });

const cases: readonly [string, SourceFetcher, string, RegExp][] = [
  ['of a format', fetcherOfHeader('avif'), 'UNSUPPORTED_IMAGE_FORMAT', /reads avif/],
  ['of HEIC', fetcherOfHeader('heic'), 'UNSUPPORTED_IMAGE_FORMAT', /reads heic.*MATTING_HEIF/],
  [
    'of a size',
    fetcherOfHeader('png', 9000, 9000),
    'IMAGE_RESOLUTION_TOO_LARGE',
    /81000000 pixels/,
  ],
];
for (const [what, source, code, detail] of cases) {
  test(`an image by its URL that no node can do › ${what} fails for good with the image's own code, and without a charge`, async t => {
    const node = await joinedWith({ limits: { ...LIMITS, megapixelsAloneMax: 60 } });
    await harness.startReplica({ ...NO_FIRST_GRACE, fetcher: source });
    const job = await harness.done({ url: IMAGE_URL });
    t.deepEqual(failureOf(job), [code, false]);
    t.regex(job.failure?.detail ?? '', detail);
    t.is(node.headers.length, 0);
    t.not(job.idempotencyKeyHash, null, 'the same request is answered by it');
    await harness.assertMoneySettled({ charged: 0 });
  });
}

const patient: readonly [string, ReplicaOptions][] = [
  ["within a replica's first grace", { noNodeGraceMs: 600_000 }],
  ['in a fleet whose nodes come when there is work', { noNodeGraceMs: 1, onDemand: true }],
];
for (const [when, options] of patient) {
  test(`an image by its URL that no node can do › waits ${when} for one that can`, async t => {
    const node = await joinedWith();
    const { observed } = await harness.startReplica({
      ...options,
      fetcher: fetcherOfHeader('avif'),
    });
    const id = await harness.submit({ url: IMAGE_URL });
    await until(() => observed.includes('fetch stored'), 'the download');
    await until(async () => (await harness.job(id)).state === 'ready', 'the job to wait');
    const able = await joinedWith(READS_AVIF);
    const job = await harness.untilFinal(id);
    t.is(job.state, 'succeeded', job.failure?.detail);
    t.deepEqual([node.headers.length, able.headers.length], [0, 1]);
  });
}

const refuses: Script = async exchange => {
  exchange.admit();
  await exchange.receive();
  exchange.fail('NODE_INCAPABLE');
};

test('a result that every node refuses once it has seen the picture › ends with its format as the cause, after each node was asked once', async t => {
  const nodes = [await joinedWith(WRITES_JXL, refuses), await joinedWith(WRITES_JXL, refuses)];
  await harness.startReplica(NO_FIRST_GRACE);
  const fields = { outputFormat: 'jxl', finishing: { outputWidth: 20 } } as const;
  const job = await harness.done({ job: fields });
  const { code, retryable } = job.failure ?? {};
  t.deepEqual([code, retryable], ['UNSUPPORTED_OUTPUT_FORMAT', false]);
  t.deepEqual(
    nodes.map(({ headers }) => headers.length),
    [1, 1],
  );
  await harness.assertMoneySettled({ charged: 0 });
});

test('a result that every node refuses once it has seen the picture › goes first to a node that can do it whatever the subject is', async t => {
  const less = await joinedWith(WRITES_JXL, refuses);
  const limits = { ...LIMITS, jxlPixelsMax: 100_000_000 };
  const more = await joinedWith({ ...WRITES_JXL, limits });
  await harness.startReplica(NO_FIRST_GRACE);
  const side = { percent: 500 };
  const crop = { top: side, right: side, bottom: side, left: side };
  const fields = { outputFormat: 'jxl', finishing: { crop, outputWidth: 9000 } } as const;
  const job = await harness.done({ job: fields });
  t.is(job.state, 'succeeded', job.failure?.detail);
  t.deepEqual([less.headers.length, more.headers.length], [0, 1]);
});
