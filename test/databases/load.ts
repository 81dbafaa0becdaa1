/**
 * Callers who submit pictures to two control planes without a pause, repeat what was refused for
 * the moment as docs/rest.md says, under the same key, and write down what became of each.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import {
  type Caller,
  pictureBody,
  type Replicas,
  type RestAnswer,
} from '../../control-plane/test/support/replicas.ts';

const CALLERS = 6;
const RETRY_MS = 500;
const POLL_MS = 100;
/** A caller who is refused for longer gives up, and the test fails. */
const PATIENCE_MS = 120_000;
const JOBS = '/v1/matting/jobs';

interface Ended {
  readonly jobId: string;
  /** By performance.now(). */
  readonly submittedAtMs: number;
  readonly endedAtMs: number;
}

export class Load {
  readonly ended: Ended[] = [];
  readonly #replicas: Replicas;
  readonly #caller: Caller;
  readonly #callers: Promise<void>[];
  #stopped = false;
  #refusals = 0;

  constructor(replicas: Replicas, caller: Caller) {
    this.#replicas = replicas;
    this.#caller = caller;
    this.#callers = Array.from({ length: CALLERS }, (_, index) => this.#work(index));
    // Told by `untilEnded` and `stop`, whoever comes first.
    for (const working of this.#callers) working.catch(() => undefined);
  }

  get accountId(): string {
    return this.#caller.accountId;
  }

  /** Answers that asked for another try. */
  get refusals(): number {
    return this.#refusals;
  }

  /** Resolves when so many jobs have ended that were submitted after an instant. */
  async untilEnded(count: number, afterMs: number): Promise<void> {
    const enough = async () => {
      while (this.ended.filter(({ submittedAtMs }) => submittedAtMs > afterMs).length < count) {
        await delay(POLL_MS);
      }
    };
    await Promise.race([enough(), Promise.all(this.#callers)]);
  }

  /** The longest time from an instant on in which no job ended. */
  longestGapMs(fromMs: number): number {
    const instants = this.ended.map(({ endedAtMs }) => endedAtMs).filter(ms => ms > fromMs);
    let gapMs = 0;
    let lastMs = fromMs;
    for (const ms of instants.sort((one, other) => one - other)) {
      gapMs = Math.max(gapMs, ms - lastMs);
      lastMs = ms;
    }
    return gapMs;
  }

  /** The longest time that a job took which was under way at an instant, or began later. */
  longestJobMs(fromMs: number): number {
    const touched = this.ended.filter(({ endedAtMs }) => endedAtMs > fromMs);
    return Math.max(0, ...touched.map(job => job.endedAtMs - job.submittedAtMs));
  }

  /** Resolves when everything that was submitted has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#callers);
  }

  /** Half of the callers wait for the answer, the others ask for it. */
  async #work(index: number): Promise<void> {
    while (!this.#stopped) {
      const submittedAtMs = performance.now();
      const key = randomUUID();
      const body = pictureBody();
      const place = index % 2 === 0 ? '/v1/matting' : JOBS;
      // A refused caller comes to the other control plane, as a balancer leads him.
      const submission = await this.#patient(attempt =>
        this.#replicas.post(this.#caller, body, {
          key,
          path: place,
          replica: (index + attempt) % 2,
        }),
      );
      const { job_id: jobId } = submission.body;
      for (let { status } = submission.body; status !== 'succeeded'; ) {
        assert.ok(['queued', 'running', 'processing'].includes(status), `${jobId} is ${status}`);
        await delay(POLL_MS);
        const answer = await this.#patient(attempt =>
          this.#replicas.get(this.#caller, `${JOBS}/${jobId}`, { replica: (index + attempt) % 2 }),
        );
        ({ status } = answer.body);
      }
      this.ended.push({ jobId, submittedAtMs, endedAtMs: performance.now() });
    }
  }

  async #patient(ask: (attempt: number) => Promise<RestAnswer>): Promise<RestAnswer> {
    const deadlineMs = performance.now() + PATIENCE_MS;
    for (let attempt = 0; ; attempt += 1) {
      const answer = await ask(attempt);
      if (answer.status < 300) return answer;
      const what = `${answer.status} ${JSON.stringify(answer.body)}`;
      assert.ok(answer.status === 503 && answer.body.retryable, what);
      assert.ok(performance.now() < deadlineMs, `refused for ever: ${what}`);
      this.#refusals += 1;
      await delay(RETRY_MS);
    }
  }
}
