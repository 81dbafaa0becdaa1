/** GET /livez and /readyz: for supervisors and load balancers. No key. */
import type { FastifyInstance } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import type { Readiness, ReadinessCause } from '../readiness.ts';

const CAUSES: Readonly<Record<ReadinessCause, string>> = {
  draining: 'this replica is shutting down',
  database: 'the database does not answer, or takes no writes',
  storage: 'the storage does not answer',
  'no-node-yet': 'no inference node has been available since this replica started',
};
const RETRY_AFTER_S = 1;

export function registerHealthRoutes(
  app: FastifyInstance,
  readiness: { check(): Promise<Readiness> },
): void {
  app.get('/livez', async () => ({ status: 'alive' }));
  app.get('/readyz', async () => {
    const state = await readiness.check();
    if (state.ready) return { status: 'ready' };
    const detail = state.causes.map(cause => CAUSES[cause]).join('; ');
    throw new ContractError('SERVICE_UNAVAILABLE', detail, { retryAfterS: RETRY_AFTER_S });
  });
}
