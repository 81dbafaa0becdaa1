/** The tables of the package as Kysely sees them; migrations/ makes them. */
declare module '@matting/database/database.ts' {
  interface Schema {
    /** A batch of images: batch.ts. */
    batches: {
      id: string;
      account_id: string;
      api_key_id: string;
      idempotency_key_hash: string;
      fingerprint: string;
      /** The caller's own name for it. */
      name: string | null;
      /** JSON: what its items have in common. */
      request: string;
      items: number;
      /** The items before it have become jobs. */
      next_item: number;
      created_at: number;
      /** Equal to created_at until it is finished: the loop's index. */
      open_at: number | null;
      cancelled_at: number | null;
      finished_at: number | null;
      /** The count of its key's cap that all its items are in; null: none. */
      cap_window_start: number | null;
      callback_url: string | null;
      /** Encrypted; moves to the outbox when the batch is finished. */
      callback_secret: Uint8Array | null;
      callback_secret_key_id: string | null;
    };
    batch_items: {
      batch_id: string;
      item: number;
      /** The job that the item becomes, or is. */
      job_id: string;
      account_id: string;
      /** Set until the item is a job. */
      image_url: string | null;
      /** Its image_url from then on, until it succeeds: submit-again.ts. */
      again_url: string | null;
      reference: string | null;
    };
  }
}
