/** What a node takes of a Matte call: its header, then the bytes of the file. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { status } from '@grpc/grpc-js';
import { CHUNK_BYTES_MAX, IMAGE_BYTES_MAX } from '#contract/limits.ts';
import {
  InputFormat,
  type MatteHeader,
  OutputFormat,
  type Priority,
  type ResultKind,
} from '#gen/matting/v1/matte_service.ts';
import {
  chunk,
  header,
  MatteCaller,
  openTestNode,
  sha256,
  type TestNode,
  type TestNodeOptions,
  untilNothingAdmitted,
} from './test-node.ts';

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

/** Nothing was admitted, nothing is held. */
function assertUntouched(): void {
  assert.equal(node.admission.snapshot().images, 0);
  assert.equal(node.pictures.decoded.length, 0);
}

describe('a header', () => {
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
  for (const [name, fields, code] of bad) {
    it(`${name} is ${code} before a byte is asked for`, async () => {
      const caller = new MatteCaller(node).send(header(fields));
      assert.equal((await caller.failure()).code, code);
      assert.deepEqual(caller.messages, []);
      assertUntouched();
    });
  }

  it('that does not come first is refused', async () => {
    const caller = new MatteCaller(node).send(chunk('bytes'), header());
    const failure = await caller.failure();
    assert.equal(failure.code, 'INVALID_REQUEST');
    assert.equal(failure.status, status.INVALID_ARGUMENT);
    assert.equal(failure.retryable, false);
    assertUntouched();
  });

  it('that comes twice is refused', async () => {
    const caller = new MatteCaller(node).send(header(), header());
    assert.equal((await caller.failure()).code, 'INVALID_REQUEST');
    await untilNothingAdmitted(node);
  });

  it('that never comes is not waited for', async () => {
    await reopen({ bounds: { headerWaitMaxMs: 30 } });
    const silent = new MatteCaller(node);
    assert.equal((await silent.failure()).code, 'CALL_DEADLINE_EXCEEDED');
    await node.matte.untilIdle();
  });

  it('without which the call ends is refused', async () => {
    const caller = new MatteCaller(node);
    caller.call.end();
    assert.equal((await caller.failure()).code, 'INVALID_REQUEST');
  });

  it('over the JPEG XL size of this node goes to another one', async () => {
    await reopen({
      capabilities: { inputFormats: ['jxl'], outputFormats: ['jxl', 'png'], jxlPixelsMax: 100 },
    });
    const fields = { inputFormat: InputFormat.INPUT_FORMAT_JXL, width: 11, height: 10 };
    const large = new MatteCaller(node).send(header(fields));
    const failure = await large.failure();
    assert.equal(failure.code, 'NODE_INCAPABLE');
    assert.equal(failure.retryable, true);
    const fits = await new MatteCaller(node).sendFile('small', { ...fields, width: 10 });
    assert.equal(await fits.ended, undefined);
  });
});

describe('the bytes', () => {
  it('too few are refused', async () => {
    const caller = new MatteCaller(node).send(header({ contentLength: 5 }));
    await caller.until('admitted');
    caller.send(chunk('1234')).call.end();
    const failure = await caller.failure();
    assert.equal(failure.code, 'INVALID_REQUEST');
    assert.match(failure.detail, /4 of 5 bytes/);
    await untilNothingAdmitted(node);
    assert.equal(node.pictures.decoded.length, 0);
  });

  it('too many are refused as they come', async () => {
    const caller = new MatteCaller(node).send(header({ contentLength: 5 }));
    await caller.until('admitted');
    caller.send(chunk('1234'), chunk('56'));
    assert.equal((await caller.failure()).code, 'INVALID_REQUEST');
    await untilNothingAdmitted(node);
  });

  it('in a chunk over 256 KiB are refused', async () => {
    const contentLength = CHUNK_BYTES_MAX + 1;
    const caller = new MatteCaller(node).send(header({ contentLength }));
    caller.send(chunk(Buffer.alloc(contentLength)));
    assert.equal((await caller.failure()).code, 'INVALID_REQUEST');
  });

  it('with another digest are refused', async () => {
    const caller = await new MatteCaller(node).sendFile('12345', { sha256: sha256('54321') });
    const failure = await caller.failure();
    assert.equal(failure.code, 'INVALID_REQUEST');
    assert.match(failure.detail, /sha256/);
    assert.equal(node.pictures.decoded.length, 0);
  });

  it('that stop coming end the call and free its permit', async () => {
    await reopen({ bounds: { receiveSilenceMaxMs: 40 } });
    const caller = new MatteCaller(node).send(header({ contentLength: 5 }), chunk('12'));
    assert.equal((await caller.failure()).code, 'CALL_DEADLINE_EXCEEDED');
    await untilNothingAdmitted(node);
  });

  it('that trickle end the call as a whole', async () => {
    await reopen({ bounds: { receiveSilenceMaxMs: 10_000, receiveMaxMs: 60 } });
    const caller = new MatteCaller(node).send(header({ contentLength: 100_000 }));
    await caller.until('admitted');
    const trickle = setInterval(() => caller.send(chunk('1')), 5);
    const failure = await caller.failure();
    clearInterval(trickle);
    assert.equal(failure.code, 'CALL_DEADLINE_EXCEEDED');
    await untilNothingAdmitted(node);
  });

  it('that come too slowly for their number end the call', async () => {
    await reopen({ bounds: { receiveSilenceMaxMs: 300, paceBytesPerSecondMin: 10_000_000 } });
    const caller = new MatteCaller(node).send(header({ contentLength: 100_000 }));
    await caller.until('admitted');
    const trickle = setInterval(() => caller.send(chunk('1')), 5);
    const failure = await caller.failure();
    clearInterval(trickle);
    assert.equal(failure.code, 'CALL_DEADLINE_EXCEEDED');
    await untilNothingAdmitted(node);
  });

  it('reach the decoder whole and in order', async () => {
    const data = Buffer.from(Array.from({ length: 3 * CHUNK_BYTES_MAX + 7 }, (_, i) => i % 251));
    const caller = new MatteCaller(node);
    caller.send(header({ contentLength: data.length, sha256: sha256(data) }));
    await caller.until('admitted');
    for (let offset = 0; offset < data.length; offset += CHUNK_BYTES_MAX) {
      caller.send(chunk(data.subarray(offset, offset + CHUNK_BYTES_MAX)));
    }
    caller.call.end();
    assert.equal(await caller.ended, undefined);
    assert.ok(node.pictures.decoded[0]?.file.equals(data));
  });
});
