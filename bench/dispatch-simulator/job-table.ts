/** The jobs of a simulation in the queue that its replicas share. */
import assert from 'node:assert/strict';
import type { ClaimableJob } from '../../control-plane/core/queue/queue.ts';
import type { EventQueue } from './event-queue.ts';
import { MemoryQueue } from './memory-queue.ts';
import type { SimulatedJob } from './workload.ts';

export class JobTable {
  readonly queue: MemoryQueue;
  readonly #jobs = new Map<string, SimulatedJob>();

  constructor(events: EventQueue) {
    this.queue = new MemoryQueue(() => events.nowMs);
  }

  insert(simulated: SimulatedJob): ClaimableJob {
    const { index, pixels, inputFormat, model = null, arrivesMs: createdAtMs } = simulated;
    const { accountId, apiKeyId, class: jobClass, outputFormat, group = null } = simulated;
    const id = String(index).padStart(9, '0');
    const input = { blob: id, bytes: 0, format: inputFormat, width: pixels, height: 1 };
    const whose = { id, accountId, apiKeyId, class: jobClass, group };
    const job = this.queue.add({ ...whose, createdAtMs, input, outputFormat, model });
    this.#jobs.set(id, simulated);
    return { ...job, state: 'ready' };
  }

  simulated(jobId: string): SimulatedJob {
    const job = this.#jobs.get(jobId);
    assert.ok(job !== undefined, 'every job was taken in');
    return job;
  }
}
