import { wholeNumber } from '@matting/core/cli/arguments.ts';
import { type CliContext, CommandError, table } from '@matting/core/cli/context.ts';
import { type Command, InvalidArgumentError } from 'commander';
import {
  LISTED_ORDER_STATES,
  OperateOrders,
  type OperatorListedOrder,
  type OrderQuestion,
} from './operate-orders.ts';
import { parseDecimal } from './order-rules.ts';
import { createOrderStore } from './order-store.ts';

const ORDERS_LISTED_MAX = 1000;
const ORDERS_LISTED_DEFAULT = 100;

interface ListOptions {
  readonly account?: string;
  readonly state?: OrderQuestion['state'];
  readonly limit: number;
  readonly after?: string;
}

interface RefundOptions {
  readonly amount?: string;
  readonly reference?: string;
}

export function addOrderCommands(program: Command, context: CliContext): void {
  const orders = program.command('orders').description('list orders, record payments and refunds');
  orders
    .command('list')
    .description('list the latest orders')
    .option('--account <account>', 'only this account, by name or id')
    .option('--state <state>', `only ${LISTED_ORDER_STATES.join(', ')}`, parseState)
    .option(
      '--limit <n>',
      'list at most this many',
      wholeNumber(1, ORDERS_LISTED_MAX),
      ORDERS_LISTED_DEFAULT,
    )
    .option('--after <cursor>', 'continue after this `cursor` of the previous page (--json)')
    .action((options: ListOptions) => list(context, options));
  orders
    .command('show')
    .description('show an order with its payments and refunds')
    .argument('<order>', 'id or reference')
    .action((order: string) => show(context, order));
  orders
    .command('confirm')
    .description('confirm the payment of an order and grant its credits, once')
    .argument('<order>', 'id or reference')
    .option('--reference <text>', 'reference of the payment')
    .action((order: string, options: { reference?: string }) => confirm(context, order, options));
  orders
    .command('refund')
    .description('record a refund and take back its credits, as far as they are available')
    .argument('<order>', 'id or reference')
    .option('--amount <sum>', 'sum such as 12.50 (default: the rest of the price)')
    .option('--reference <text>', 'unique reference; a second use changes nothing')
    .action((order: string, options: RefundOptions) => refund(context, order, options));
}

function operate<T>(context: CliContext, work: (orders: OperateOrders) => Promise<T>): Promise<T> {
  return context.withStores((stores, database) =>
    work(new OperateOrders({ ...stores, orders: createOrderStore(database) })),
  );
}

async function list(context: CliContext, { account, state, limit, after }: ListOptions) {
  const orders = await operate(context, operateOrders =>
    operateOrders.list({ account, state, limit, after }),
  );
  context.report(orders, () =>
    table(['ORDER', 'STATE', 'CREDITS', 'PRICE', 'CREATED', 'ACCOUNT'], orders.map(rowOf)),
  );
}

function rowOf(order: OperatorListedOrder): string[] {
  const { order_id: id, reference, state, credits, price, currency } = order;
  const sum = `${price} ${currency}`;
  return [reference ?? id, state, String(credits), sum, order.created_at, order.account_id];
}

async function show(context: CliContext, orderId: string) {
  const order = await operate(context, operateOrders => operateOrders.show(orderId));
  context.report(order, () => {
    const { payments, refunds, ...rest } = order;
    return [
      ...Object.entries(rest).map(([name, value]) => `${name.padEnd(23)}${value ?? '-'}`),
      ...payments.map(
        one => `payment ${one.payment}: ${one.amount} ${one.currency}, ${one.outcome}`,
      ),
      ...refunds.map(
        one =>
          `refund ${one.refund}: ${one.sum}, ${one.credits_revoked} of ${one.credits} credits ` +
          `revoked${one.applied_at === null ? ', waits for the payment' : ''}`,
      ),
    ];
  });
}

async function confirm(
  context: CliContext,
  orderId: string,
  { reference }: { reference?: string },
) {
  const confirmed = await operate(context, operateOrders =>
    operateOrders.confirm(orderId, reference),
  );
  const { changed, late, order } = confirmed;
  context.report(confirmed, () => [
    changed
      ? `${order.credits} credits granted (order:${order.order_id})`
      : 'the order was confirmed before; nothing was changed',
    ...(late ? ['it had expired or was cancelled before its payment'] : []),
  ]);
}

async function refund(
  context: CliContext,
  orderId: string,
  { amount: typed, reference }: RefundOptions,
) {
  const refunded = await operate(context, async operateOrders => {
    const { currency } = await operateOrders.show(orderId);
    const amount = typed === undefined ? undefined : parseDecimal(typed, currency);
    if (typed !== undefined && amount === undefined) {
      throw new CommandError(`--amount must be a sum of ${currency} such as 12.50`);
    }
    return operateOrders.refund(orderId, { amount, reference });
  });
  const { changed, refund: entered, order } = refunded;
  context.report(refunded, () => [
    changed
      ? `${entered.sum} ${order.currency} refunded: ${entered.credits_revoked} credits revoked`
      : `"${entered.refund}" was used before; nothing was changed`,
    ...(entered.credits_not_revoked === 0
      ? []
      : [
          `${entered.credits_not_revoked} credits were spent, or are reserved until their jobs end`,
        ]),
  ]);
}

function parseState(text: string): OrderQuestion['state'] {
  const state = LISTED_ORDER_STATES.find(known => known === text);
  if (state === undefined) {
    throw new InvalidArgumentError(`Use one of ${LISTED_ORDER_STATES.join(', ')}.`);
  }
  return state;
}
