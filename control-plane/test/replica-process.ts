/** The test sets its leases. */
import { openTestPlane } from './programs.ts';

const [replicaId = '', leaseMs, renewMs] = process.argv.slice(2);
const jobs = { leaseMs: Number(leaseMs), renewMs: Number(renewMs) };
const nodes = { leaseMs: Number(leaseMs), heartbeatMs: Number(renewMs) };
const plane = await openTestPlane(process.env, replicaId, { timing: { jobs, nodes } });
process.stdout.write(`${JSON.stringify(plane.ports)}\n`);
