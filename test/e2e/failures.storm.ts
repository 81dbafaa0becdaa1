/** Processes that die each time under work: nothing is lost, nothing needs a restart. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import sharp from 'sharp';
import { type RunningService, requireNothingLeft, startService } from '../running-service.ts';
import { descendantsOf, until } from '../support/processes.ts';

const test = ava.serial;

let service: RunningService;
/** A photo whose decoding and encoding take long enough to be killed in the middle. */
let large: { image_base64: string; output_format: string };
let small: { image_base64: string };

test.before(async () => {
  const gaussian = { type: 'gaussian', mean: 128, sigma: 40 } as const;
  const create = { width: 3000, height: 2400, channels: 3, background: 'grey' } as const;
  const noise = await sharp({ create: { ...create, noise: gaussian } })
    .png()
    .toBuffer();
  large = { image_base64: noise.toString('base64'), output_format: 'png' };
  small = {
    image_base64: (await sharp(noise).resize(400, 300).jpeg().toBuffer()).toString('base64'),
  };
  service = await startService({
    MATTING_NO_NODE_GRACE_MS: '2000',
    // Slow, so that no run is over before it is seen from outside: more than twenty polls.
    MATTING_MODEL: 'u2netp',
    MATTING_MODEL_INPUT_SIZE: '640',
    MATTING_PRECISION: 'fp32',
    MATTING_ENGINE_THREADS: '1',
  });
});

test.after.always(async () => {
  if (service?.process.signalCode === null) await service.close();
});

function pidsOf(program: string): number[] {
  return descendantsOf(service.process.pid ?? 0)
    .filter(({ command }) => command.includes(program))
    .map(({ pid }) => pid);
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    // The process ended between the listing and the signal.
    assert.equal((error as NodeJS.ErrnoException).code, 'ESRCH');
  }
}

/** Kills every process of the program as it appears, or as it works, until ended. */
function holdDown(program: string, whenBusy?: RegExp): () => Promise<void> {
  let down = true;
  const killer = (async () => {
    while (down) {
      if (whenBusy === undefined || whenBusy.test(await nodeMetrics())) {
        for (const pid of pidsOf(program)) kill(pid);
      }
      await delay(20);
    }
  })();
  return () => {
    down = false;
    return killer;
  };
}

async function nodeMetrics(): Promise<string> {
  const url = `http://127.0.0.1:${service.env.MATTING_NODE_HTTP_PORT}/metrics`;
  // Gone for a moment where the node itself is started again.
  return fetch(url).then(
    answer => answer.text(),
    () => '',
  );
}

async function submit(body: object): Promise<string> {
  const answer = await service.post(body, { path: '/v1/matting/jobs' });
  assert.equal(answer.status, 202, JSON.stringify(answer.body));
  return answer.body.job_id;
}

const killedEveryTime: [program: string, whenBusy: RegExp][] = [
  ['picture-worker', /^matting_node_picture_workers_busy\S* [1-9]/m],
  ['engine-child', /^matting_node_engines_running\S* [1-9]/m],
];
for (const [program, whenBusy] of killedEveryTime) {
  test(`a ${program} killed every time under its image: the job fails, the credit is back`, async t => {
    const before = await service.credits();
    const job = await submit(large);
    const release = holdDown(program, whenBusy);
    try {
      const final = await service.final(job, 120_000);
      t.is(final.status, 'failed', JSON.stringify(final));
      t.is(final.error?.code, 'PROCESSING_FAILED');
      t.deepEqual(final.credits, { reserved: 0, charged: 0 });
    } finally {
      await release();
    }
    t.deepEqual(await service.credits(), before);
    await until(async () => (await service.post(small)).status === 200, {
      timeoutMs: 60_000,
      what: 'it recovers without a restart',
    });
  });
}

test('picture workers killed as they appear: the job waits, and nothing is held against it', async t => {
  const startsFailed = async () => {
    const metrics = await nodeMetrics();
    return Number(
      /^matting_node_picture_worker_ends_total\{.*"start".*\} (\d+)$/m.exec(metrics)?.[1],
    );
  };
  const before = await startsFailed();
  const release = holdDown('picture-worker');
  const job = await submit(small);
  try {
    // The image is refused at the third and each later one.
    await until(async () => (await startsFailed()) >= before + 8, {
      timeoutMs: 120_000,
      what: 'it was refused some times',
    });
  } finally {
    await release();
  }
  const final = await service.final(job, 120_000);
  t.deepEqual([final.status, final.credits.charged], ['succeeded', 1], JSON.stringify(final));
});

test('a node killed and back: accepted jobs wait and finish, new ones are refused after the grace', async t => {
  const job = await submit(large);
  // The supervisor starts the node again, and each start is killed.
  const release = holdDown('inference-node/main');
  try {
    await until(
      async () => {
        const answer = await service.post(small, { path: '/v1/matting/jobs' });
        if (answer.status === 202) {
          // Each has to be done below: some few are enough.
          await delay(250);
          return false;
        }
        t.is(answer.status, 503, JSON.stringify(answer.body));
        t.is(answer.body.code, 'SERVICE_UNAVAILABLE');
        t.true(Number(answer.headers.get('retry-after')) > 0);
        return true;
      },
      { timeoutMs: 30_000, what: 'new submissions are refused' },
    );
    // Losing the nodes later leaves it ready: the control plane itself is well.
    t.is((await fetch(`${service.baseUrl}/readyz`)).status, 200);
  } finally {
    await release();
  }
  t.is((await service.final(job, 120_000)).status, 'succeeded');
  await until(async () => (await service.post(small)).status === 200, {
    timeoutMs: 60_000,
    what: 'new jobs are taken again',
  });
  await until(async () => (await service.credits()).reserved === 0, {
    timeoutMs: 120_000,
    what: 'every accepted job is final',
  });
});

test('a supervisor killed outright takes every process with it', async t => {
  const before = descendantsOf(service.process.pid ?? 0);
  t.true(before.length >= 4, JSON.stringify(before));
  service.process.kill('SIGKILL');
  await requireNothingLeft(service.dataDir);
  await until(() => before.every(({ pid }) => !existsSync(`/proc/${pid}`)), {
    timeoutMs: 60_000,
    what: 'no child is left',
    detail: () => JSON.stringify(before.filter(({ pid }) => existsSync(`/proc/${pid}`))),
  });
});
