/** How a Matte call ends other than by its result, and what it gives back then. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { status } from '@grpc/grpc-js';
import { pino } from 'pino';
import { ContractError } from '#contract/errors.ts';
import {
  chunk,
  header,
  MatteCaller,
  openTestNode,
  type TestNode,
  type TestNodeOptions,
  untilNothingAdmitted,
} from './test-node.ts';

/** Deadline of calls whose deadline passes: many times what they take to the stage that is held. */
const DEADLINE_MS = 1500;

let node: TestNode;

async function reopen(options: TestNodeOptions): Promise<void> {
  await node.close();
  node = await openTestNode(options);
}

beforeEach(async () => {
  node = await openTestNode();
});

afterEach(async () => {
  await node.close();
});

describe('a caller that goes away', () => {
  for (const stage of ['acquire', 'decode', 'infer', 'finish'] as const) {
    it(`in ${stage} frees its permit and its worker, once`, async () => {
      let freed = 0;
      node.gates.hold(stage);
      const caller = await new MatteCaller(node).sendFile('12345');
      await node.gates.reached(stage);
      node.admission.onChange(() => {
        freed += 1;
      });
      caller.call.cancel();
      await node.matte.untilIdle();
      assert.equal(freed, 1);
      assert.equal(node.admission.snapshot().images, 0);
      assert.equal(node.pictures.leasesOut, 0);
      assert.equal(node.pictures.releases, stage === 'acquire' ? 0 : 1);
      assert.equal(node.pipeline.imagesAt('inferring'), 0);
    });

    it(`whose deadline passes in ${stage} frees them too, and no later stage begins`, async () => {
      node.gates.hold(stage);
      const caller = await new MatteCaller(node, { deadlineMs: DEADLINE_MS }).sendFile('12345');
      await node.gates.reached(stage);
      assert.equal((await caller.failure()).status, status.DEADLINE_EXCEEDED);
      await node.matte.untilIdle();
      assert.equal(node.admission.snapshot().images, 0);
      assert.equal(node.pictures.leasesOut, 0);
      const begun = [node.pictures.decoded, node.engines.runs, node.pictures.finished];
      const last = ['acquire', 'decode', 'infer', 'finish'].indexOf(stage);
      assert.deepEqual(
        begun.map(images => images.length > 0),
        [last >= 1, last >= 2, last >= 3],
      );
    });
  }

  it('while its bytes are coming frees its permit', async () => {
    const caller = new MatteCaller(node).send(header({ contentLength: 5 }), chunk('12'));
    await caller.until('admitted');
    caller.call.cancel();
    await node.matte.untilIdle();
    assert.equal(node.admission.snapshot().images, 0);
  });

  it('while its result is sent frees its permit', async () => {
    node.pictures.result = Buffer.alloc(24 * 1024 * 1024, 1);
    const caller = new MatteCaller(node);
    caller.call.pause();
    caller.send(header({ contentLength: 5 }), chunk('12345')).call.end();
    while (node.pipeline.imagesAt('sending') === 0) await new Promise(r => setImmediate(r));
    caller.call.cancel();
    await node.matte.untilIdle();
    assert.equal(node.admission.snapshot().images, 0);
  });

  it('by its deadline is told so, and counted as gone', async () => {
    node.gates.hold('infer');
    const caller = new MatteCaller(node, { deadlineMs: DEADLINE_MS });
    await caller.sendFile('12345');
    const failure = await caller.failure();
    assert.equal(failure.status, status.DEADLINE_EXCEEDED);
    await node.matte.untilIdle();
    assert.equal(node.admission.snapshot().images, 0);
    const counted = await node.metrics.registry.getSingleMetric('matting_node_images_total')!.get();
    const ended = counted.values.filter(({ value }) => value > 0);
    const labels = ended.map(value => value.labels);
    assert.deepEqual(labels, [
      { outcome: 'cancelled', code: 'CALL_DEADLINE_EXCEEDED', output_format: 'png' },
    ]);
  });
});

describe('an error of a stage', () => {
  const faults: [string, unknown, string, number][] = [
    ['of the image', new ContractError('PROCESSING_FAILED', 'broken'), 'PROCESSING_FAILED', 3],
    ['of an engine', new ContractError('ENGINE_LOST', 'died'), 'ENGINE_LOST', 10],
    ['unknown', new Error('a path /secret/of/the/machine'), 'NODE_FAULT', 13],
  ];
  for (const [name, error, code, number] of faults) {
    it(`${name} is ${code} and frees everything`, async () => {
      node.gates.failOnce('infer', error);
      const caller = await new MatteCaller(node).sendFile('12345');
      const failure = await caller.failure();
      assert.equal(failure.code, code);
      assert.equal(failure.status, number);
      assert.doesNotMatch(failure.detail, /secret/);
      await untilNothingAdmitted(node);
      assert.equal(node.pictures.leasesOut, 0);
    });
  }

  it('leaves what the codec said in the log, and out of the status', async () => {
    const lines: Record<string, unknown>[] = [];
    const log = pino({}, { write: line => lines.push(JSON.parse(line)) });
    await reopen({ log });
    const cause = 'premature end of JPEG image';
    node.gates.failOnce('decode', new ContractError('PROCESSING_FAILED', 'damaged', { cause }));
    const caller = await new MatteCaller(node).sendFile('12345', { jobId: 'job-7' });
    assert.equal((await caller.failure()).detail, 'damaged');
    const line = lines.find(({ msg }) => msg === 'image failed');
    assert.equal(line?.reason, cause);
    assert.equal(line?.jobId, 'job-7');
  });

  it('with half a surrogate pair in its text still ends the call', async () => {
    node.gates.failOnce('decode', new ContractError('PROCESSING_FAILED', 'odd \ud800 text'));
    const caller = await new MatteCaller(node).sendFile('12345');
    assert.equal((await caller.failure()).code, 'PROCESSING_FAILED');
  });
});

it('a hurried end tells the callers that the node is going', async () => {
  node.gates.hold('infer');
  const caller = await new MatteCaller(node).sendFile('12345');
  await node.gates.reached('infer');
  node.matte.abortAll(new ContractError('NODE_UNAVAILABLE', 'the node shuts down'));
  assert.equal((await caller.failure()).code, 'NODE_UNAVAILABLE');
  await node.matte.untilIdle();
  assert.equal(node.admission.snapshot().images, 0);
});
