import { fundedAccount } from '@matting/core/test/fixtures.ts';
import ava from 'ava';
import { csvLine } from '../page/csv.ts';
import { useStores } from '../test/fixtures.ts';
import { placed } from '../test/orders.ts';
import { LedgerHistory } from './ledger-history.ts';
import type { Order } from './order-rules.ts';
import { ReceivePayment } from './receive-payment.ts';
import type { PaymentNotice } from './signed-notifications.ts';

type ReceivePaymentOptions = ConstructorParameters<typeof ReceivePayment>[0];

const EXPORT_READER_MS_MAX = 5000;
const EXPORTS_AT_ONCE_MAX = 4;
const test = ava.serial;

const ALL = { kind: undefined, from: undefined, to: undefined };

const { stores } = useStores(test);
let history: LedgerHistory;
test.before(() => {
  history = new LedgerHistory(stores, { exportPageRows: 3 });
});

async function linesOf(account: string): Promise<string[]> {
  const parts: string[] = [];
  for await (const part of history.export(account, ALL).lines) parts.push(part);
  return parts.join('').split('\r\n');
}

test('an export of the ledger › has every entry once, however many statements it takes', async t => {
  for (const grants of [0, 2, 3, 7]) {
    const account = await fundedAccount(stores, 0);
    for (let index = 0; index < grants; index += 1) {
      await stores.ledger.grant(account, 1 + index, `grant ${index}`);
    }
    const [head, ...rows] = await linesOf(account);
    t.is(head, '"time","kind","credits","reference"');
    t.is(rows.pop(), '');
    const amounts = rows.map(row => Number(row.split(',')[2])).sort((a, b) => a - b);
    t.deepEqual(
      amounts,
      Array.from({ length: grants }, (_, index) => 1 + index),
    );
  }
});

test('an export of the ledger › is one of an account and a few of all, until its reader has it or leaves', async t => {
  const codeOf = (account: string) => {
    try {
      return history.export(account, ALL);
    } catch (error) {
      return (error as { code: string }).code;
    }
  };
  const accounts = [];
  for (let index = 0; index <= EXPORTS_AT_ONCE_MAX; index += 1) {
    accounts.push(await fundedAccount(stores, 1));
  }
  const [one = '', ...others] = accounts;
  const left = history.export(one, ALL);
  t.is(codeOf(one), 'RATE_LIMITED');
  const begun = others.slice(1).map(account => history.export(account, ALL));
  t.is(codeOf(others[0] ?? ''), 'SERVICE_UNAVAILABLE');
  // One reader leaves before the first line, another after it. The last reads all.
  left.end();
  left.end();
  const [second, third, fourth] = begun;
  await second?.lines.next();
  await second?.lines.return();
  for await (const line of third?.lines ?? []) t.truthy(line);
  fourth?.end();
  for (const account of accounts.slice(0, EXPORTS_AT_ONCE_MAX)) {
    t.is(typeof codeOf(account), 'object');
  }
  t.is(codeOf(one), 'RATE_LIMITED');
});

test('exports whose readers are late › give their places to those of other accounts, the latest first', async t => {
  let nowMs = 0;
  const history = new LedgerHistory(stores, { exportPageRows: 1, clockMs: () => nowMs });
  const begin = async () => {
    const account = await fundedAccount(stores, 1);
    await stores.ledger.grant(account, 1, 'another');
    return { account, ...history.export(account, ALL) };
  };
  const begun = [];
  for (let count = 0; count < EXPORTS_AT_ONCE_MAX; count += 1) {
    begun.push(await begin());
    // Each export has given its first line, and its reader has stopped.
    await begun.at(-1)?.lines.next();
    nowMs += 1;
  }
  nowMs = EXPORT_READER_MS_MAX - 1;
  await t.throwsAsync(begin(), { code: 'SERVICE_UNAVAILABLE' });
  // The first reader continues in time, so the second is the slowest.
  await begun[0]?.lines.next();
  nowMs = EXPORT_READER_MS_MAX + 1;
  const newcomer = await begin();
  const left = begun[1];
  await t.throwsAsync(async () => left?.lines.next(), { message: /late/ });
  for (const { lines } of [...begun.filter(one => one !== left), newcomer]) {
    for await (const line of lines) t.truthy(line);
  }
  // A stopped export holds no slot, and its `end` frees no slot of the next one.
  history.export(left?.account ?? '', ALL);
  left?.end();
  t.throws(() => history.export(left?.account ?? '', ALL), { code: 'RATE_LIMITED' });
});

test('a line of CSV › quotes text, keeps numbers, and begins no cell like a formula', t => {
  t.is(csvLine(['a"b', 7, 'x,y\nz']), '"a""b",7,"x,y\nz"\r\n');
  const wide = ['＝1＋1', '＋1', '－1', '＠SUM(A1)'];
  for (const text of ['=1+1', '+1', '-1', '@SUM(A1)', '\t=1', '\r=1', '\n=1', ...wide]) {
    t.is(csvLine([text]), `"'${text}"\r\n`);
  }
  t.is(csvLine([-1]), '-1\r\n');
});

const BODY = Buffer.alloc(0);

/** Every message is this notice with a valid signature. */
function receiver(notice: PaymentNotice, more: Partial<ReceivePaymentOptions> = {}) {
  const provider = { name: 'provider', read: () => notice };
  return new ReceivePayment({ provider, orders: stores.orders, ...more });
}

const paymentOf = ({ id, price, currency }: Order, payment = 'pay-1'): PaymentNotice => ({
  kind: 'payment',
  orderId: id,
  payment: { payment, amount: price, currency },
});

const refusalOf = (received: Promise<unknown>) =>
  received.then(
    () => 'taken',
    (error: { code: string }) => error.code,
  );

test('notifications of payments › are counted by what became of them', async t => {
  const order = await placed(stores, await fundedAccount(stores, 0));
  const outcomes: string[] = [];
  const onNotification = (outcome: string) => void outcomes.push(outcome);
  await receiver(paymentOf(order), { onNotification }).receive({}, BODY);
  await receiver(paymentOf(order), { onNotification }).receive({}, BODY);
  await receiver(paymentOf(order, 'pay-2'), { onNotification }).receive({}, BODY);
  const wrong = paymentOf({ ...order, price: 1 }, 'pay-3');
  await refusalOf(receiver(wrong, { onNotification }).receive({}, BODY));
  t.deepEqual(outcomes, ['paid', 'already_paid', 'paid_again', 'refused']);
  t.is((await stores.orders.find(order.id))?.paidBy, 'provider');
});

test('notifications of payments › are few at the database at once', async t => {
  const order = await placed(stores, await fundedAccount(stores, 0));
  const gate = Promise.withResolvers<void>();
  const orders: ReceivePaymentOptions['orders'] = {
    pay: async (...args) => {
      await gate.promise;
      return stores.orders.pay(...args);
    },
    refund: stores.orders.refund,
  };
  const busy = receiver(paymentOf(order), { orders });
  const begun = Array.from({ length: 8 }, () => busy.receive({}, BODY));
  t.is(await refusalOf(busy.receive({}, BODY)), 'SERVICE_UNAVAILABLE');
  gate.resolve();
  await Promise.all(begun);
  t.is(await refusalOf(busy.receive({}, BODY)), 'taken');
});
