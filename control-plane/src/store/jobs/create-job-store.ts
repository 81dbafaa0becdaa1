/**
 * The JobStore on SQLite, MySQL and MariaDB: its concepts, each in a file of its own, put together.
 */
import type { Database } from '../database/connect.ts';
import { JobCompletion, type RenderOutboxBody } from './job-completion.ts';
import { JobLanes } from './job-lanes.ts';
import { JobLeases } from './job-lease.ts';
import { JobOperations } from './job-operations.ts';
import { JobQueries } from './job-queries.ts';
import { JobRetention } from './job-retention.ts';
import type { JobStore } from './job-store.ts';
import { submitJob } from './job-submission.ts';

export interface JobStoreOptions {
  readonly renderOutboxBody: RenderOutboxBody;
  /** Between a job's end and the first attempt to tell of it; none unless given. */
  readonly webhookFirstWaitMs?: number;
}

export function createJobStore(database: Database, options: JobStoreOptions): JobStore {
  const queries = new JobQueries(database);
  const lanes = new JobLanes(database);
  const leases = new JobLeases(database);
  const completion = new JobCompletion(
    database,
    options.renderOutboxBody,
    options.webhookFirstWaitMs ?? 0,
  );
  const retention = new JobRetention(database);
  const operations = new JobOperations(database);
  return {
    find: jobId => queries.find(jobId),
    findFinal: jobIds => queries.findFinal(jobIds),
    findForKey: (jobId, apiKeyId) => queries.findForKey(jobId, apiKeyId),
    findByIdempotencyKey: (apiKeyId, hash) => queries.findByIdempotencyKey(apiKeyId, hash),
    findByResultToken: token => queries.findByResultToken(token),
    submit: (job, limits) => submitJob(database, job, limits),
    listLanes: () => lanes.list(),
    listClaimable: (limit, among) => lanes.listClaimable(limit, among),
    claim: (job, holder, leaseMs) => leases.claim(job, holder, leaseMs),
    renew: (claim, leaseMs) => leases.renew(claim, leaseMs),
    release: (...args) => leases.release(...args),
    inputStored: (...args) => leases.inputStored(...args),
    admitted: (...args) => leases.admitted(...args),
    attemptLost: (...args) => leases.attemptLost(...args),
    succeed: (...args) => completion.succeed(...args),
    fail: (...args) => completion.fail(...args),
    list: filter => operations.list(filter),
    endLease: jobId => operations.endLease(jobId),
    queued: () => retention.queued(),
    doneWithin: windowMs => retention.doneWithin(windowMs),
    takeExpiredResultBlobs: limit => retention.takeExpiredResultBlobs(limit),
    removeFinalOlderThan: (afterMs, limit) => retention.removeFinalOlderThan(afterMs, limit),
    referencedBlobs: names => retention.referencedBlobs(names),
  };
}
