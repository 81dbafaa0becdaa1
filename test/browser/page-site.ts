/** The account area and the operator's pages in this process, without a node. Needs: portal. */
import type { FastifyInstance } from 'fastify';
import type { Browser } from 'playwright-core';
import { KEY, register } from '../../control-plane/core/test/operator-port.ts';
import { imageBody } from '../../control-plane/core/test/support/test-app.ts';
import { openWorld, type World } from '../../control-plane/portal/test/area/world.ts';
import { operatorAppOn } from '../../control-plane/portal/test/operator-app.ts';
import { placed } from '../../control-plane/portal/test/orders.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { Visitor, type VisitorOptions } from './chromium.ts';

const DRAINING_NODE = 'node-with-a-long-name.rack-12.example.com';

export interface PageSite extends World {
  readonly origin: string;
  readonly operator: OperatorSite;
}

interface OperatorSite {
  readonly origin: string;
  readonly app: FastifyInstance;
  readonly routes: readonly string[];
}

export async function openPageSite(): Promise<PageSite> {
  const [port, metrics] = await findFreePorts(2);
  const origin = `http://localhost:${port}`;
  const world = await openWorld({ baseUrl: origin, modelsOffered: ['standard', 'fast'] });
  await world.test.app.listen({ host: 'localhost', port });
  const operator = await openOperatorSite(world, metrics);
  const closeWorld = world.close.bind(world);
  const close = async () => {
    await operator.app.close();
    await closeWorld();
  };
  return Object.assign(world, { origin, operator, close });
}

async function openOperatorSite({ test }: World, port: number): Promise<OperatorSite> {
  const app = operatorAppOn(test.stores);
  const routes: string[] = [];
  app.addHook('onRoute', ({ method, url }) => {
    if (method === 'GET') routes.push(url);
  });
  await app.listen({ host: 'localhost', port });
  return { origin: `http://localhost:${port}`, app, routes };
}

/** A working node, a draining one, a waiting order, and a job with a callback. */
export async function fillOperatorPages({ test, ours }: PageSite): Promise<void> {
  const { stores } = test;
  for (const id of ['node-1', DRAINING_NODE]) await register(stores, id, 'http://10.0.0.7:8081');
  await stores.nodes.setDraining(DRAINING_NODE, true);
  await placed(stores, ours.accountId);
  const told = imageBody({
    callback_url: `https://receiver.example.com/${'a-long-path/'.repeat(8)}`,
    callback_secret: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
  });
  const answer = await test.post('/v1/matting/jobs', told);
  await test.succeedJob(answer.json().job_id);
}

export async function openOperator(
  browser: Browser,
  { operator }: PageSite,
  options: Omit<VisitorOptions, 'origins'> = {},
): Promise<Visitor> {
  const visitor = await Visitor.open(browser, { ...options, origins: [operator.origin] });
  await visitor.go('/operator/sign-in');
  await visitor.page.locator('input[name=key]').fill(KEY);
  await visitor.page.locator('main button[type=submit]').click();
  await visitor.page.waitForURL(/\/operator$/);
  return visitor;
}
