/** What no node can do, found out by the job: by its download, or by the nodes' own refusals. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { InputFormat } from '#contract/formats.ts';
import {
  type GetNodeInfoResponse,
  NodeLimits,
  OutputFormat,
  InputFormat as ProtoInput,
} from '#gen/matting/v1/matte_service.ts';
import type { SourceFetcher } from '../../../src/services/dispatch/source-fetch.ts';
import type { Script } from '../../nodes/scripted-exchange.ts';
import { fetcherOf, type ReplicaOptions, until, useHarness } from './harness.ts';

const IMAGE_URL = 'https://images.example/image';
/** Over before anything is asked: what nodes say counts from the start on. */
const NO_FIRST_GRACE = { noNodeGraceMs: 1 };
const ON_DEMAND = { waitTargetMs: 60_000, nodesMin: 0, nodesMax: 10 };

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

const harness = useHarness();

const joined = (info: Partial<GetNodeInfoResponse> = {}, script?: Script) =>
  harness.addNode({ info, ...(script && { script }) });

const fetcher = (format: InputFormat, width = 5, height = 4) =>
  fetcherOf(undefined, { format, width, height });

describe('an image by its URL that no node can do', () => {
  const cases: readonly [string, SourceFetcher, string, RegExp][] = [
    ['of a format', fetcher('avif'), 'UNSUPPORTED_IMAGE_FORMAT', /reads avif/],
    ['of a size', fetcher('png', 9000, 9000), 'IMAGE_RESOLUTION_TOO_LARGE', /81000000 pixels/],
  ];
  for (const [what, source, code, detail] of cases) {
    it(`${what} ends with the image's own code, for good, and without a charge`, async () => {
      const node = await joined({ limits: { ...LIMITS, megapixelsAloneMax: 60 } });
      await harness.startReplica({ ...NO_FIRST_GRACE, fetcher: source });
      const job = await harness.untilFinal(await harness.submit({ url: IMAGE_URL }));
      assert.deepEqual([job.failure?.code, job.failure?.retryable], [code, false]);
      assert.match(job.failure?.detail ?? '', detail);
      assert.equal(node.headers.length, 0);
      assert.notEqual(job.idempotencyKeyHash, null, 'the same request is answered by it');
      await harness.assertMoneySettled({ charged: 0 });
    });
  }

  const patient: readonly [string, ReplicaOptions][] = [
    ["within a replica's first grace", { noNodeGraceMs: 600_000 }],
    ['in a fleet whose nodes come when there is work', { noNodeGraceMs: 1, onDemand: ON_DEMAND }],
  ];
  for (const [when, options] of patient) {
    it(`waits ${when} for one that can`, async () => {
      const node = await joined();
      const { observed } = await harness.startReplica({ ...options, fetcher: fetcher('avif') });
      const id = await harness.submit({ url: IMAGE_URL });
      await until(() => observed.includes('fetch stored'), 'the download');
      await until(async () => (await harness.job(id)).state === 'ready', 'the job to wait');
      const able = await joined(READS_AVIF);
      const job = await harness.untilFinal(id);
      assert.equal(job.state, 'succeeded', job.failure?.detail);
      assert.deepEqual([node.headers.length, able.headers.length], [0, 1]);
    });
  }

  it('waits in a fleet that sleeps where no node is', async () => {
    const options = { noNodeGraceMs: 1, onDemand: ON_DEMAND, fetcher: fetcher('avif') };
    const { observed } = await harness.startReplica(options);
    const id = await harness.submit({ url: IMAGE_URL });
    await until(() => observed.includes('fetch stored'), 'the download');
    await joined(READS_AVIF);
    assert.equal((await harness.untilFinal(id)).state, 'succeeded');
  });
});

describe('a result that every node refuses once it has seen the picture', () => {
  const refuses: Script = async exchange => {
    exchange.admit();
    await exchange.receive();
    exchange.fail('NODE_INCAPABLE');
  };

  it('ends with its format as the cause, after each node was asked once', async () => {
    const nodes = [await joined(WRITES_JXL, refuses), await joined(WRITES_JXL, refuses)];
    await harness.startReplica(NO_FIRST_GRACE);
    const asked = { outputFormat: 'jxl', finishing: { outputWidth: 20 } } as const;
    const job = await harness.untilFinal(await harness.submit({ asked }));
    const { code, retryable } = job.failure ?? {};
    assert.deepEqual([code, retryable], ['UNSUPPORTED_OUTPUT_FORMAT', false]);
    assert.deepEqual(
      nodes.map(({ headers }) => headers.length),
      [1, 1],
    );
    await harness.assertMoneySettled({ charged: 0 });
  });

  it('goes first to a node that can do it whatever the subject is', async () => {
    const less = await joined(WRITES_JXL, refuses);
    const limits = { ...LIMITS, jxlPixelsMax: 100_000_000 };
    const more = await joined({ ...WRITES_JXL, limits });
    await harness.startReplica(NO_FIRST_GRACE);
    const side = { percent: 500 };
    const crop = { top: side, right: side, bottom: side, left: side };
    const asked = { outputFormat: 'jxl', finishing: { crop, outputWidth: 9000 } } as const;
    const job = await harness.untilFinal(await harness.submit({ asked }));
    assert.equal(job.state, 'succeeded', job.failure?.detail);
    assert.deepEqual([less.headers.length, more.headers.length], [0, 1]);
  });
});
