/** Jobs with finishing: which nodes get them, with what, and what is believed of the answer. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { beforeEach, describe, it } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { ContractError } from '#contract/errors.ts';
import {
  type GetNodeInfoResponse,
  OutputFormat,
  type ResultHeader,
  ResultKind,
} from '#gen/matting/v1/matte_service.ts';
import { backgroundBlob } from '../../../src/domain/job.ts';
import type { NewJob } from '../../../src/store/jobs/job-submission.ts';
import { cutOutOf, type Script } from '../../nodes/scripted-exchange.ts';
import { WITH_PICTURE } from '../../store/fixtures.ts';
import { aborted, fetcherOf, until, useHarness } from './harness.ts';

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

const harness = useHarness();
let fetched: string[];

beforeEach(() => {
  fetched = [];
});

const joined = (script?: Script) => harness.addNode({ info: FINISHES, ...(script && { script }) });

/** A job whose background was uploaded with it. */
async function submitWithFile(bytes: string): Promise<string> {
  const id = randomUUID();
  const blob = backgroundBlob(id);
  const writer = await harness.blobs.createWriter(blob);
  await writer.write(Buffer.from(bytes));
  await writer.commit();
  const input = { blob, bytes: bytes.length, format: 'jpeg', width: 30, height: 20 } as const;
  return harness.submit({ asked: { ...WITH_PICTURE, background: { url: null, input } } });
}

const withUrl = (url = BACKGROUND) => ({ ...WITH_PICTURE, background: { url, input: null } });

/** Answers with the URL's text; those `held` names not before it is let go. */
function fetcher(held: string | undefined = undefined, letGo = Promise.resolve()) {
  return fetcherOf(async (url, { signal, kind }) => {
    fetched.push(`${kind} ${url}`);
    if (url === held) await Promise.race([letGo, aborted(signal)]);
  });
}

/** Pictures are removed once their job is final, a moment after it. */
async function untilLeft(names: readonly (string | undefined)[]): Promise<void> {
  const isLeft = async () => isDeepStrictEqual(await harness.blobNames(), names);
  await until(isLeft, `nothing left but ${names}`);
}

describe('a job with finishing', () => {
  it('goes to a node with its background behind its image', async () => {
    let received: Buffer = Buffer.alloc(0);
    const box = { left: 1, top: 2, width: 3, height: 4 };
    const node = await joined(async exchange => {
      exchange.admit();
      received = await exchange.receive();
      const subject = { inputBox: box, resultBox: { ...box, left: 0 }, share: 0.25 };
      exchange.answer(received, { inputWidth: 10, inputHeight: 9, subject });
    });
    await harness.startReplica();
    const job = await harness.untilFinal(await submitWithFile('a background'));
    assert.equal(job.state, 'succeeded', job.failure?.detail);
    assert.equal(node.headers.length, 1);
    assert.match(received.toString(), /^picture of .*a background$/);
    const background = node.headers[0]?.finishing?.background;
    assert.ok(background?.$case === 'backgroundPicture');
    const { contentLength, width, height } = background.value;
    assert.deepEqual([contentLength, width, height], [12, 30, 20]);
    assert.deepEqual(job.result?.sight, {
      inputWidth: 10,
      inputHeight: 9,
      subject: { inputBox: box, resultBox: { ...box, left: 0 }, share: 0.25 },
    });
    await untilLeft([job.result?.blob]);
    await harness.assertMoneySettled({ charged: 1 });
  });

  it('names its format and kind, and asks for the echo where nothing else is asked', async () => {
    const node = await joined();
    await harness.startReplica();
    const jpeg = await harness.untilFinal(await harness.submit({ asked: WHITE_JPEG }));
    assert.equal(jpeg.result?.format, 'jpeg');
    const alpha = { channels: 'alpha', finishing: {} } as const;
    await harness.untilFinal(await harness.submit({ asked: alpha }));
    const [first, second] = node.headers;
    assert.equal(first?.outputFormat, OutputFormat.OUTPUT_FORMAT_JPEG);
    assert.equal(first?.finishing?.scalePercent, 85);
    assert.equal(second?.resultKind, ResultKind.RESULT_KIND_MASK);
    assert.ok(second?.finishing !== undefined && second.finishing.background === undefined);
  });

  it('counts as large as its frame', async () => {
    const gate = Promise.withResolvers<void>();
    await joined(async exchange => {
      await gate.promise;
      await exchange.cutOut();
    });
    const { fleet } = await harness.startReplica();
    const finishing = { outputWidth: 5000, outputHeight: 6000 };
    const id = await harness.submit({ asked: { finishing } });
    // 30 megapixels of PNG, at 8 of the 42 bytes that a megapixel of a node's room stands for.
    const free = () => fleet.snapshots()[0]?.megapixelsFree ?? 0;
    await until(() => Math.abs(1000 - (30 * 8) / 42 - free()) < 1e-6, 'the room of its frame');
    gate.resolve();
    await harness.untilFinal(id);
  });
});

describe('a background that a node cannot decode', () => {
  it('ends the job by its own code, for good', async () => {
    const node = await joined(async exchange => {
      exchange.admit();
      await exchange.receive();
      exchange.fail('INVALID_PARAMETER');
    });
    await harness.startReplica();
    const job = await harness.untilFinal(await submitWithFile('broken'));
    assert.deepEqual([job.failure?.code, job.failure?.retryable], ['INVALID_PARAMETER', false]);
    assert.equal(node.headers.length, 1);
    await untilLeft([]);
    await harness.assertMoneySettled({ charged: 0 });
  });
});

const LIES: readonly [what: string, changes: Partial<ResultHeader>][] = [
  ['does not repeat it', { finishing: undefined }],
  ['makes another kind', { resultKind: ResultKind.RESULT_KIND_MASK }],
  ['makes another format', { format: OutputFormat.OUTPUT_FORMAT_PNG }],
];

describe('an answer without what was asked for', () => {
  for (const [what, changes] of LIES) {
    it(`is nothing where a node ${what}: another node does it`, async () => {
      const liar = await joined(exchange => exchange.cutOut(changes));
      const { observed } = await harness.startReplica();
      const id = await harness.submit({ asked: WHITE_JPEG });
      await until(() => observed.includes('attempt refused NODE_INCAPABLE'), 'the refusal');
      assert.equal((await harness.job(id)).lostAttempts, 0);
      await joined();
      const job = await harness.untilFinal(id);
      assert.equal(job.state, 'succeeded', job.failure?.detail);
      assert.equal(liar.headers.length, 1);
      await harness.assertMoneySettled({ charged: 1 });
    });
  }

  it('is nothing where a step is missing of it', async () => {
    const liar = await joined(async exchange => {
      const { finishing } = exchange.header;
      assert.ok(finishing);
      await exchange.cutOut({ finishing: { ...finishing, scalePercent: 0 } });
    });
    await harness.startReplica({ noNodeGraceMs: 100 });
    const { failure } = await harness.untilFinal(await harness.submit({ asked: WHITE_JPEG }));
    assert.deepEqual([failure?.code, failure?.retryable], ['PROCESSING_FAILED', true]);
    assert.equal(liar.headers.length, 1);
    await harness.assertMoneySettled({ charged: 0 });
  });
});

describe('a background by its URL', () => {
  it('is downloaded after the image, and goes to the node behind it', async () => {
    await joined();
    await harness.startReplica({ fetcher: fetcher() });
    const job = await harness.untilFinal(
      await harness.submit({ url: IMAGE_URL, asked: withUrl() }),
    );
    assert.deepEqual(fetched, [`image ${IMAGE_URL}`, `background ${BACKGROUND}`]);
    const both = Buffer.from(`${IMAGE_URL}${BACKGROUND}`);
    assert.deepEqual(await harness.resultOf(job), cutOutOf(both));
    await untilLeft([job.result?.blob]);
    assert.deepEqual([job.takeovers, job.background], [0, null]);
  });

  it('is all that is downloaded for an image that was uploaded', async () => {
    await joined();
    await harness.startReplica({ fetcher: fetcher() });
    const job = await harness.untilFinal(await harness.submit({ asked: withUrl() }));
    assert.equal(job.state, 'succeeded', job.failure?.detail);
    assert.deepEqual(fetched, [`background ${BACKGROUND}`]);
  });

  it('is all that is downloaded again where a replica goes away between the two', async () => {
    await joined();
    const first = await harness.startReplica({
      fetcher: fetcher(BACKGROUND, Promise.withResolvers<void>().promise),
    });
    const id = await harness.submit({ url: IMAGE_URL, asked: withUrl() });
    await until(() => fetched.length === 2, 'the download of the background');
    first.dispatcher.hurry();
    await first.dispatcher.stop(0);
    await harness.startReplica({ fetcher: fetcher(), holder: 'other' });
    const job = await harness.untilFinal(id);
    const background = `background ${BACKGROUND}`;
    assert.deepEqual(fetched, [`image ${IMAGE_URL}`, background, background]);
    const both = Buffer.from(`${IMAGE_URL}${BACKGROUND}`);
    assert.deepEqual(await harness.resultOf(job), cutOutOf(both));
    await harness.assertMoneySettled({ charged: 1 });
  });

  it('that cannot be had ends the job, costs nothing and leaves nothing', async () => {
    await joined();
    await harness.startReplica({
      fetcher: fetcherOf((_url, { kind }) => {
        if (kind === 'image') return;
        throw new ContractError('IMAGE_DOWNLOAD_FAILED', 'background_url: gone');
      }),
    });
    const job = await harness.untilFinal(
      await harness.submit({ url: IMAGE_URL, asked: withUrl() }),
    );
    assert.deepEqual(job.failure, {
      code: 'IMAGE_DOWNLOAD_FAILED',
      detail: 'background_url: gone',
      retryable: false,
    });
    await untilLeft([]);
    await harness.assertMoneySettled({ charged: 0 });
  });
});

describe('an image by its URL that shows what the fields make of it', () => {
  it('ends the job by the name of the field, and no node is asked', async () => {
    const node = await joined();
    await harness.startReplica({ fetcher: fetcher() });
    const asked = { finishing: { outputHeight: 10_000 } };
    const job = await harness.untilFinal(await harness.submit({ url: IMAGE_URL, asked }));
    assert.deepEqual([job.failure?.code, job.failure?.retryable], ['INVALID_PARAMETER', false]);
    assert.match(job.failure?.detail ?? '', /^output_height makes a frame of \d+ pixels/);
    assert.deepEqual([node.headers.length, job.startedAtMs], [0, null]);
    await untilLeft([]);
    await harness.assertMoneySettled({ charged: 0 });
  });

  it('ends it before its background is downloaded', async () => {
    await joined();
    await harness.startReplica({ fetcher: fetcher() });
    const { finishing } = WITH_PICTURE;
    const asked = { ...withUrl(), finishing: { ...finishing, outputWidth: 9000 } };
    const job = await harness.untilFinal(await harness.submit({ url: IMAGE_URL, asked }));
    assert.equal(job.failure?.code, 'INVALID_PARAMETER');
    assert.deepEqual(fetched, [`image ${IMAGE_URL}`]);
  });
});
