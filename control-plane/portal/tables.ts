/** The portal's tables as Kysely sees them; migrations/ makes them, in this order. */
import type { Generated } from 'kysely';
import type { PaymentOutcome, StoredOrderState } from './orders/order-rules.ts';
import type { LinkPurpose, MemberSource } from './people/link-store.ts';
import type { Role } from './session/roles.ts';
import type { SignInMethod } from './session/session-store.ts';

declare module '@matting/database/database.ts' {
  interface Schema {
    /** What jobs used that ended on a UTC day: as the ledger's settlements of that day. */
    usage_days: {
      account_id: string;
      /** Days since 1970-01-01 UTC, of the ledger's entry. */
      day: number;
      api_key_id: string;
      outcome: 'succeeded' | 'failed';
      /** Of the output. */
      format: string;
      images: number;
      credits: number;
    };
    /** One row an account whose playground was used: its allowance of a day. */
    playgrounds: {
      account_id: string;
      /** The key that its jobs are of; nobody has its secret. */
      api_key_id: string;
      /** The first instant of the day that `used` counts, UTC. */
      day_at: number;
      used: number;
    };
    /** A purchase of one package, at the price of its day (orders/order-rules.ts). Never removed. */
    orders: {
      id: string;
      account_id: string;
      price_list: 'credit' | 'image';
      credits: number;
      /** In the currency's smallest unit, as every sum of money here. */
      price: number;
      currency: string;
      /** 'pending' past expires_at is expired. */
      state: StoredOrderState;
      /** Of the price, paid back. */
      refunded: number;
      /** Credits that refunds took back, and those that they could not: spent, or held by jobs. */
      revoked: number;
      unrevoked: number;
      /** The last refund that left something; null: `unrevoked` is 0. */
      unrevoked_at: number | null;
      created_at: number;
      expires_at: number;
      paid_at: number | null;
      /** Who told of the payment. */
      paid_by: string | null;
      /** The payment that was accepted. */
      payment: string | null;
      cancelled_at: number | null;
      /** What payers write into a transfer, of one order; null: it is older than references. */
      reference: string | null;
    };
    /** Payments that were told of, each once; of an order whatever its state. */
    order_payments: {
      order_id: string;
      payment: string;
      amount: number;
      currency: string;
      outcome: PaymentOutcome;
      told_by: string;
      received_at: number;
    };
    /** Refunds, each once. */
    order_refunds: {
      order_id: string;
      refund: string;
      amount: number;
      /** Credits that the amount stands for, and how many of them could be taken back. */
      credits: number;
      revoked: number;
      told_by: string;
      created_at: number;
      /** null: it was told of before the payment, and waits for it. */
      applied_at: number | null;
    };
    users: {
      id: string;
      /** As it was typed; of people of an identity provider their name (providerName). */
      mail: string;
      /** mailKeyOf the mail; null: known by an identity provider alone, and found by no mail. */
      mail_key: string | null;
      /** Null: no password was set. */
      password_hash: string | null;
      /** Null: what the browser asks for. */
      language: string | null;
      created_at: number;
      disabled_at: number | null;
      /**
       * Since when the mail is theirs for sure: they came by a link that its mail alone, or the
       * operator, brought. Null: somebody typed it.
       */
      proven_at: number | null;
      /** Counts what kept others out of this row, where engines certify. */
      turns: Generated<number>;
    };
    /** Who a person is elsewhere (OpenID Connect). */
    identities: {
      issuer: string;
      subject: string;
      user_id: string;
      created_at: number;
    };
    members: {
      account_id: string;
      user_id: string;
      role: Role;
      /** 'oidc': by a group of the identity provider, judged again at each sign-in. */
      source: MemberSource;
      created_at: number;
    };
    one_time_links: {
      id: string;
      /** SHA-256 of the token, hexadecimal. */
      token_hash: string;
      purpose: LinkPurpose;
      account_id: string;
      mail: string;
      role: Role;
      /** Who made it: a mail, or `operator`. */
      created_by: string;
      created_at: number;
      expires_at: number;
      used_at: number | null;
      /** 1: who opens it has that mail; 0: another person has seen it too. */
      proves_mail: number;
      /** The person who made it; null: the operator. */
      made_by: string | null;
    };
    sessions: {
      /** What lists and forms call it; no secret. */
      id: string;
      /** SHA-256 of what the cookie holds, hexadecimal. */
      id_hash: string;
      user_id: string;
      /** The account that the person acts for. */
      account_id: string;
      method: SignInMethod;
      created_at: number;
      /** Up to a minute late. */
      seen_at: number;
      /** The absolute bound. */
      expires_at: number;
      address: string;
      /** The browser's words about itself. */
      agent: string;
    };
    /** Failed sign-ins of an address or a mail: portal/sign-in/sign-in.ts. */
    sign_in_throttles: {
      key_hash: string;
      window_start: number;
      failures: number;
    };
    /** One row a threshold that an owner set. */
    balance_alerts: {
      account_id: string;
      /** Told at this many available credits, and at fewer. */
      threshold: number;
      created_at: number;
      /** null: armed. */
      told_at: number | null;
      /** available + reserved when it was told. */
      told_credits: number | null;
      told_event: string | null;
      /** When the account's quota last kept a notice or a part of it back; null: nothing waits. */
      withheld_at: number | null;
      /** What waits (alerts/notices.ts). */
      withheld_rest: string | null;
    };
    /** At most one row an account: where its own events go. */
    account_webhooks: {
      account_id: string;
      url: string;
      /** Encrypted, bound to the account. */
      secret: Uint8Array;
      secret_key_id: string;
      created_at: number;
      /** The last test that was sent; null: none yet. */
      test_event: string | null;
    };
    /** Notices before API keys expire, each once. */
    key_expiry_notices: {
      id: string;
      api_key_id: string;
      expires_at: number;
      /** As in balance_alerts. */
      withheld_at: number | null;
      withheld_rest: string | null;
    };
    /** Sessions of the operator's pages that were signed out, until they would have expired. */
    ended_operator_sessions: {
      /** SHA-256 of what the cookie holds, hexadecimal. */
      token_hash: string;
      expires_at: number;
    };
    /** What was sent on a day (UTC) of an account's, or to an address: alerts/messages.ts. */
    message_counts: {
      /** SHA-256 of what is counted, hexadecimal: no table of addresses. */
      key_hash: string;
      /** The day's first instant. */
      day_at: number;
      used: number;
      withheld: number;
      /** Only of an account's events: when the last test of any address of its was sent. */
      tested_at: number | null;
    };
  }
}
