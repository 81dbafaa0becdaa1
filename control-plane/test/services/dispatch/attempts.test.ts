/** What each end of an attempt means for the job: the rules of job-run.ts over real gRPC. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { OutputFormat } from '#gen/matting/v1/matte_service.ts';
import type { BlobStore } from '../../../src/storage/blob-store.ts';
import { cutOutOf, inTurn, type Script } from '../../nodes/scripted-exchange.ts';
import { until, useHarness } from './harness.ts';

const harness = useHarness();

const wellDone: Script = exchange => exchange.cutOut();

function admitThen(then: (exchange: Parameters<Script>[0]) => void | Promise<void>): Script {
  return async exchange => {
    exchange.admit();
    await exchange.receive();
    await then(exchange);
  };
}

/** The harness's storage, but for what it says of results. */
function saying(stat: BlobStore['stat'], sha256?: string): BlobStore {
  const { blobs } = harness;
  const stored = async (name: string) => {
    const found = await stat(name);
    return found && { ...found, ...(sha256 === undefined ? {} : { sha256 }) };
  };
  return {
    createWriter: name => blobs.createWriter(name),
    openRead: (name, reading) => blobs.openRead(name, reading),
    stat,
    remove: name => blobs.remove(name),
    listOlderThan: (olderThanMs, part) => blobs.listOlderThan(olderThanMs, part),
    check: () => blobs.check(),
    freeBytes: () => blobs.freeBytes(),
    // Of no origin that a node lists: every result is streamed.
    signed: sha256 === undefined ? undefined : ({ origin: 'http://none', stored } as never),
  };
}

describe('a result that is streamed', () => {
  const right = (name: string) => harness.blobs.stat(name);
  const lies: readonly (readonly [string, () => BlobStore])[] = [
    ['has nothing of it', () => saying(async () => undefined)],
    ['has another length', () => saying(async () => ({ bytes: 7 }))],
    ['has another checksum', () => saying(right, '00'.repeat(32))],
  ];
  for (const [what, storage] of lies) {
    it(`is not charged where the storage took it and ${what}`, async () => {
      await harness.addNode(wellDone);
      await harness.startReplica({ blobs: storage() });
      const job = await harness.untilFinal(await harness.submit());
      assert.deepEqual(
        [job.state, job.failure?.code, job.failure?.retryable],
        ['failed', 'PROCESSING_FAILED', true],
      );
      await harness.assertMoneySettled({ charged: 0 });
      assert.deepEqual(await harness.blobNames(), []);
    });
  }

  it('is charged where the storage shows the checksum of what was received', async () => {
    const picture = randomBytes(1000);
    await harness.addNode(wellDone);
    const sha256 = createHash('sha256').update(cutOutOf(picture)).digest('hex');
    await harness.startReplica({ blobs: saying(right, sha256) });
    const job = await harness.untilFinal(await harness.submit({ bytes: picture }));
    assert.equal(job.state, 'succeeded', job.failure?.detail);
    await harness.assertMoneySettled({ charged: 1 });
  });
});

describe('an attempt on a node', () => {
  it('lost with an engine once is tried again and succeeds', async () => {
    await harness.addNode(
      inTurn(
        admitThen(exchange => exchange.fail('ENGINE_LOST')),
        wellDone,
      ),
    );
    await harness.startReplica();
    const job = await harness.untilFinal(await harness.submit());
    assert.equal(job.state, 'succeeded');
    assert.deepEqual([job.lostAttempts, job.lostWithProcess], [1, 1]);
    await harness.assertMoneySettled({ charged: 1 });
  });

  it('lost with a process twice fails the job for good, and the third node is spared', async () => {
    const killer = admitThen(exchange => exchange.fail('PICTURE_WORKER_LOST'));
    const nodes = [
      await harness.addNode(killer),
      await harness.addNode(killer),
      await harness.addNode(killer),
    ];
    await harness.startReplica();
    const job = await harness.untilFinal(await harness.submit());
    assert.equal(job.failure?.code, 'PROCESSING_FAILED');
    assert.equal(job.failure?.retryable, false);
    assert.equal(nodes.filter(node => node.headers.length > 0).length, 2, 'two different nodes');
    await harness.assertMoneySettled({ charged: 0 });
    assert.deepEqual(await harness.blobNames(), []);
  });

  it('lost with its node three times fails the job, which may be sent again', async () => {
    const node = await harness.addNode();
    // The connection breaks under the admitted image, each time.
    node.script = admitThen(async () => {
      await node.down();
      await node.up();
    });
    await harness.startReplica();
    const job = await harness.untilFinal(await harness.submit());
    assert.equal(job.failure?.code, 'PROCESSING_FAILED');
    assert.equal(job.failure?.retryable, true);
    assert.deepEqual([job.lostAttempts, job.lostWithProcess], [3, 0]);
    assert.equal(job.idempotencyKeyHash, null, 'the key is free again');
    await harness.assertMoneySettled({ charged: 0 });
  });

  it('whose node hangs is cut off at the limit and tried elsewhere', async () => {
    // The room it says it has makes it the first choice, whichever way ties fall.
    const hanging = await harness.addNode({
      script: admitThen(exchange => exchange.cancelled),
      imagesMax: 3,
    });
    const well = await harness.addNode();
    // The limit is the other attempt's too, which has to be done in it.
    await harness.startReplica({ attemptTimeoutMs: 2000 });
    const job = await harness.untilFinal(await harness.submit());
    assert.equal(job.state, 'succeeded');
    assert.equal(job.lostAttempts, 1);
    assert.deepEqual([hanging.headers.length, well.headers.length], [1, 1]);
  });

  it('refused for now goes to another node at once and counts nothing', async () => {
    // The room it says it has makes it the first choice, whichever way ties fall.
    const full = await harness.addNode({
      script: async exchange => exchange.fail('NODE_OVERLOADED'),
      imagesMax: 3,
    });
    const well = await harness.addNode();
    const { observed } = await harness.startReplica();
    const job = await harness.untilFinal(await harness.submit());
    assert.equal(job.state, 'succeeded');
    assert.equal(job.lostAttempts, 0);
    assert.deepEqual([full.headers.length, well.headers.length], [1, 1]);
    assert.ok(observed.includes('attempt refused NODE_OVERLOADED'));
  });

  it('refused everywhere waits, keeps no lease, and is done when a node has room', async () => {
    const node = await harness.addNode(async exchange => exchange.fail('NODE_UNAVAILABLE'));
    await harness.startReplica();
    const jobId = await harness.submit();
    await until(() => node.headers.length >= 2, 'a second try');
    await until(async () => (await harness.job(jobId)).lease === null, 'no lease');
    assert.equal((await harness.job(jobId)).startedAtMs, null);
    node.script = wellDone;
    const job = await harness.untilFinal(jobId);
    assert.equal(job.state, 'succeeded');
  });

  it('is not offered again to a node that cannot do it', async () => {
    const incapable = await harness.addNode(async exchange => exchange.fail('NODE_INCAPABLE'));
    await harness.startReplica({ noNodeGraceMs: 200 });
    const job = await harness.untilFinal(await harness.submit());
    assert.equal(incapable.headers.length, 1);
    assert.equal(job.failure?.code, 'PROCESSING_FAILED');
    assert.equal(job.failure?.retryable, true);
    await harness.assertMoneySettled({ charged: 0 });
  });

  it('of a format no routable node takes fails after the grace', async () => {
    const node = await harness.addNode();
    await harness.startReplica({ noNodeGraceMs: 200 });
    const job = await harness.untilFinal(await harness.submit({ format: 'avif' }));
    assert.equal(job.failure?.code, 'PROCESSING_FAILED');
    assert.equal(node.headers.length, 0);
  });

  it('that finds the image at fault fails the job with that code, once', async () => {
    const node = await harness.addNode(
      admitThen(exchange => exchange.fail('IMAGE_RESOLUTION_TOO_LARGE')),
    );
    await harness.startReplica();
    const job = await harness.untilFinal(await harness.submit());
    assert.equal(job.failure?.code, 'IMAGE_RESOLUTION_TOO_LARGE');
    assert.equal(job.failure?.retryable, false);
    assert.equal(node.headers.length, 1);
    await harness.assertMoneySettled({ charged: 0 });
  });

  it("that is the node's own fault is tried once elsewhere", async () => {
    const faulty: Script = admitThen(exchange => exchange.fail('NODE_FAULT'));
    const first = await harness.addNode(faulty);
    const second = await harness.addNode(faulty);
    await harness.startReplica();
    const failed = await harness.untilFinal(await harness.submit());
    assert.equal(failed.failure?.code, 'PROCESSING_FAILED');
    assert.deepEqual([first.headers.length, second.headers.length], [1, 1]);
    assert.equal(failed.lostAttempts, 0);
    second.script = wellDone;
    first.script = wellDone;
    assert.equal((await harness.untilFinal(await harness.submit())).state, 'succeeded');
  });

  it('that fails again and again takes its node out, and the jobs succeed elsewhere', async () => {
    const faulty = await harness.addNode(admitThen(exchange => exchange.fail('NODE_FAULT')));
    // Slower by its own report, so that the faulty one is the first choice.
    const well = await harness.addNode({ load: () => ({ inferMs: 1000 }) });
    const { fleet } = await harness.startReplica();
    for (let sent = 0; sent < 8; sent += 1) {
      const job = await harness.untilFinal(await harness.submit());
      assert.equal(job.state, 'succeeded');
      assert.equal(job.lostAttempts, 0, 'a fault of the node counts against no job');
    }
    assert.equal(faulty.headers.length, 5);
    assert.equal(well.headers.length, 8);
    const ejected = fleet.snapshots().filter(node => node.ejectedUntilMs > performance.now());
    assert.deepEqual(
      ejected.map(({ nodeId }) => nodeId),
      [faulty.nodeId],
    );
    await harness.assertMoneySettled({ charged: 8 });
  });

  it('whose input is read wrong is made again once, and no more', async () => {
    for (const [faults, state] of [
      [1, 'succeeded'],
      [2, 'failed'],
    ] as const) {
      let reads = 0;
      const { blobs } = harness;
      const faulty = {
        ...saying(name => blobs.stat(name)),
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
      const job = await harness.untilFinal(await harness.submit());
      assert.deepEqual([job.state, reads], [state, 2]);
      if (state === 'failed') assert.equal(job.failure?.retryable, true);
      await harness.assertMoneySettled({ charged: 1 });
      await replica.dispatcher.stop(0);
    }
  });

  it('whose input is gone from the storage fails the job, which may be sent again', async () => {
    const node = await harness.addNode();
    await harness.startReplica();
    // Nothing goes there until its engine is back.
    node.enginesReady = 0;
    node.report();
    await until(() => harness.replicas[0]?.fleet.snapshots()[0]?.enginesReady === 0);
    const jobId = await harness.submit();
    await harness.blobs.remove(`inputs/${jobId}`);
    node.enginesReady = 1;
    node.report();
    const job = await harness.untilFinal(jobId);
    assert.equal(job.failure?.code, 'PROCESSING_FAILED');
    assert.equal(job.failure?.retryable, true);
    assert.equal(job.lostAttempts, 0);
  });
});

describe('a result', () => {
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
    it(`${what} is never stored, and another attempt succeeds`, async () => {
      await harness.addNode(inTurn(script, wellDone));
      await harness.startReplica();
      const bytes = randomBytes(1000);
      const job = await harness.untilFinal(await harness.submit({ bytes }));
      assert.deepEqual(await harness.resultOf(job), cutOutOf(bytes));
      assert.deepEqual(await harness.blobNames(), [job.result?.blob]);
    });
  }

  it('of several megabytes arrives whole, with what is known of it', async () => {
    await harness.addNode();
    const replica = await harness.startReplica();
    const bytes = randomBytes(5 * 1024 * 1024);
    const jobId = await harness.submit({ bytes });
    const told = new Promise<void>(resolve => replica.events.onFinal(jobId, resolve));
    await told;
    const job = await harness.job(jobId);
    assert.equal(job.state, 'succeeded', 'visible when it is told of');
    const expected = cutOutOf(bytes);
    assert.deepEqual(await harness.resultOf(job), expected);
    assert.equal(job.result?.bytes, expected.length);
    assert.deepEqual([job.result?.width, job.result?.height], [10, 10]);
    assert.equal(job.timings?.infer, 3);
    assert.equal(job.result?.blob, `results/${jobId}-${job.fence}`);
    assert.deepEqual(await harness.blobNames(), [job.result?.blob], 'the input is erased');
  });
});
