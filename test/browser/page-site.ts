/** The account area of one process for a browser; no node. Needs: portal. */
import { openWorld, type World } from '../../control-plane/portal/test/area/world.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';

export interface PageSite extends World {
  readonly origin: string;
}

export async function openPageSite(): Promise<PageSite> {
  const [port] = await findFreePorts(1);
  const origin = `http://localhost:${port}`;
  const world = await openWorld({ baseUrl: origin, modelsOffered: ['standard', 'fast'] });
  await world.test.app.listen({ host: 'localhost', port });
  return Object.assign(world, { origin });
}
