/**
 * Jobs and nodes as the operator sees them, on the command line and over HTTP alike: without a
 * result's link and without a source.
 */

import { publicPrefix } from '../keys/authenticate.ts';
import type { NodeMember } from '../nodes/node-store.ts';
import { isoTime, type Job, modeOf, publicState } from './job.ts';

export type OperatorJob = ReturnType<typeof viewJob>;
export type OperatorNode = ReturnType<typeof viewNode>;

export function viewJob(job: Job) {
  const { input, result, lease } = job;
  return {
    job_id: job.id,
    status: publicState(job),
    state: job.state,
    account_id: job.accountId,
    key: publicPrefix(job.apiKeyId),
    mode: modeOf(job),
    playground: job.class === 'playground',
    created_at: isoTime(job.createdAtMs),
    started_at: isoTime(job.startedAtMs),
    finished_at: isoTime(job.finishedAtMs),
    expires_at: isoTime(job.expiresAtMs),
    input: input && {
      format: input.format,
      bytes: input.bytes,
      width: input.width,
      height: input.height,
    },
    output_format: job.outputFormat,
    result: result && { bytes: result.bytes, width: result.width, height: result.height },
    error: job.failure,
    lease: lease && { holder: lease.holder, expires_at: isoTime(lease.expiresAtMs) },
    fence: job.fence,
    lost_attempts: job.lostAttempts,
    takeovers: job.takeovers,
    timings: job.timings,
  };
}

export function viewNode(member: NodeMember) {
  return {
    node_id: member.nodeId,
    state: nodeState(member),
    draining: member.draining,
    address: member.address,
    http_address: member.httpAddress === '' ? null : member.httpAddress,
    version: member.version,
    registered_at: isoTime(member.registeredAtMs),
    heartbeat_at: isoTime(member.heartbeatAtMs),
  };
}

/** live, draining: its lease is valid. gone: it deregistered. silent: its lease ran out. */
function nodeState(member: NodeMember): 'live' | 'draining' | 'gone' | 'silent' {
  if (member.gone) return 'gone';
  if (!member.live) return 'silent';
  return member.draining ? 'draining' : 'live';
}
