/**
 * A control plane in a process of its own, for tests that stop or kill it: what main.ts opens, with
 * the leases that the test asks for, so that waiting for one to run out is short.
 */
import { openTestPlane } from './programs.ts';

const [replicaId = '', leaseMs, renewMs] = process.argv.slice(2);
const jobs = { leaseMs: Number(leaseMs), renewMs: Number(renewMs) };
const nodes = { leaseMs: Number(leaseMs), heartbeatMs: Number(renewMs) };
const plane = await openTestPlane(process.env, replicaId, { timing: { jobs, nodes } });
process.stdout.write(`${JSON.stringify(plane.ports)}\n`);
// Its parent ends it; where the parent is gone it must not stay.
process.stdin.on('end', () => process.exit(0)).resume();
