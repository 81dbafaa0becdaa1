/** Orders: packages on sale, the account's orders, one of them, ordering and cancelling. */
import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { may } from '../../../domain/account/roles.ts';
import type { Orders } from '../../../services/sales/orders.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { renderPage } from '../page/render-page.ts';
import { PageError } from '../session/page-error.ts';
import { formOf, signedInOf } from '../session/signed-in.ts';
import { orderPage, ordersPage, packagesPage } from '../views/credits/orders-view.ts';
import type { Words } from '../words/words.ts';
import { CREDITS_PATHS, placeOf } from './credit-routes.ts';

const READ = { config: { permission: 'credits.read' } } as const;
const MANAGE = { config: { permission: 'orders.manage' } } as const;

type Refusals = Words['orders']['refused'];

export interface OrderRouteServices {
  readonly orders: Orders;
}

export function registerOrderRoutes(
  account: FastifyInstance,
  { orders }: OrderRouteServices,
): void {
  account.get('/orders', READ, async (request, reply) => {
    const { accountId } = signedInOf(request);
    const after = placeOf(request);
    const page = await orders.list(accountId, after);
    const { words } = frameOf(request);
    return renderPage(request, reply, {
      title: words.orders.title,
      lead: words.orders.lead,
      active: 'credits',
      said: words.orders.said,
      main: ordersPage({ ...frameOf(request), ...page, isFirst: after === undefined }),
    });
  });
  account.get('/orders/packages', MANAGE, (request, reply) =>
    renderPackages(request, reply, orders),
  );
  account.post('/orders', MANAGE, (request, reply) => place(request, reply, orders));
  account.get<{ Params: { id: string } }>('/orders/:id', READ, (request, reply) =>
    renderOrder(request, reply, orders, request.params.id),
  );
  account.post<{ Params: { id: string } }>('/orders/:id/cancel', MANAGE, async (request, reply) => {
    const { accountId, actor } = signedInOf(request);
    const { id } = request.params;
    const { kind } = await orders.cancel(accountId, id, actor);
    if (kind === 'unknown') throw new PageError('notFound');
    if (kind === 'not-pending') {
      return renderOrder(request, reply, orders, id, 'notPending');
    }
    return reply.redirect(`${CREDITS_PATHS.orders}/${id}?said=cancelled`, 303);
  });
}

function frameOf(request: FastifyRequest) {
  const { role } = signedInOf(request);
  const mayOrder = may(role, 'orders.manage');
  const paths = CREDITS_PATHS;
  return { words: wordsOf(request), formats: formatsOf(request), paths, mayOrder };
}

const FORM = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const WHOLE = /^\d{1,13}$/;

/** All fields are hidden: who sends others has made a form of their own. */
async function place(
  request: FastifyRequest,
  reply: FastifyReply,
  orders: Orders,
): Promise<FastifyReply> {
  const fields = formOf(request);
  const [form, credits, price] = [
    fields.text('form'),
    fields.text('credits'),
    fields.text('price'),
  ];
  if (!FORM.test(form) || !WHOLE.test(credits) || !WHOLE.test(price))
    throw new PageError('badForm');
  const { accountId, actor } = signedInOf(request);
  const ordered = { form, credits: Number(credits), price: Number(price) };
  const outcome = await orders.place(accountId, ordered, actor);
  switch (outcome.kind) {
    case 'placed':
    case 'already-placed':
      return reply.redirect(`${CREDITS_PATHS.orders}/${outcome.order.id}?said=placed`, 303);
    case 'too-many-pending':
      return renderPackages(request, reply, orders, 'tooManyPending');
    case 'too-many-today':
      return renderPackages(request, reply, orders, 'tooManyToday');
    case 'not-on-sale':
      return renderPackages(request, reply, orders, 'notOnSale');
    case 'unknown-account':
      throw new Error('a session of an account that is not there');
  }
}

function renderPackages(
  request: FastifyRequest,
  reply: FastifyReply,
  { packages }: Orders,
  refused?: keyof Refusals,
): FastifyReply {
  const frame = frameOf(request);
  const { orders } = frame.words;
  return renderPage(request, reply, {
    title: orders.buy,
    lead: orders.buyLead,
    active: 'credits',
    status: refused === undefined ? 200 : 422,
    main: packagesPage({
      ...frame,
      csrf: signedInOf(request).csrf,
      form: randomUUID(),
      packages,
      problem: refused && orders.refused[refused],
    }),
  });
}

async function renderOrder(
  request: FastifyRequest,
  reply: FastifyReply,
  orders: Orders,
  id: string,
  refused?: keyof Refusals,
): Promise<FastifyReply> {
  const { accountId, csrf } = signedInOf(request);
  const shown = await orders.show(accountId, id);
  if (shown === undefined) throw new PageError('notFound');
  const frame = frameOf(request);
  const text = frame.words.orders;
  return renderPage(request, reply, {
    title: text.one,
    back: { href: CREDITS_PATHS.orders, label: text.title },
    active: 'credits',
    said: text.said,
    status: refused === undefined ? 200 : 422,
    main: orderPage({
      ...frame,
      ...shown,
      csrf,
      instructions: orders.instructions,
      problem: refused && text.refused[refused],
    }),
  });
}
