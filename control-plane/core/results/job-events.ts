import { EventEmitter } from 'node:events';
import { outsideRequests } from '@matting/program/request-owner.ts';
import type { QueueJob } from '@matting/queue/job.ts';
import type { FamilyJob } from '../jobs/job-family.ts';
import type { JobRequest } from '../jobs/job-request.ts';

export type SubmittedJob = QueueJob & JobRequest & Pick<FamilyJob, 'correction'>;

/** Events of this replica: a hint, never the truth. */
export class JobEvents {
  readonly #submitted = new EventEmitter();
  readonly #final = new EventEmitter();
  readonly #notifications = new EventEmitter();

  constructor() {
    // The bound on connections bounds the listeners.
    this.#final.setMaxListeners(0);
  }

  jobSubmitted(job: SubmittedJob): void {
    // Work that a listener starts belongs to no request.
    outsideRequests(() => this.#submitted.emit('job', job));
  }

  onSubmitted(listener: (job: SubmittedJob) => void): () => void {
    this.#submitted.on('job', listener);
    return () => this.#submitted.off('job', listener);
  }

  jobFinal(jobId: string): void {
    this.#final.emit(jobId);
  }

  notificationDue(): void {
    this.#notifications.emit('due');
  }

  onNotificationDue(listener: () => void): () => void {
    this.#notifications.on('due', listener);
    return () => this.#notifications.off('due', listener);
  }

  onFinal(jobId: string, listener: () => void): () => void {
    this.#final.on(jobId, listener);
    return () => this.#final.off(jobId, listener);
  }
}
