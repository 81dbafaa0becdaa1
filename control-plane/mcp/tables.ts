/** The table of the package as Kysely sees it; migrations/ makes it. */
declare module '@matting/database/database.ts' {
  interface Schema {
    /** An address for one image, and the image once it came, until both are over (upload-store.ts). */
    mcp_uploads: {
      account_id: string;
      /** An account has so many uploads as there are slots, from 0. */
      slot: number;
      id: string;
      /** Nobody else can use the image. */
      api_key_id: string;
      /** SHA-256 of the address' secret part. */
      token_hash: string;
      created_at: number;
      /** Null: no image has come. */
      blob: string | null;
      /** JSON: its hash and what its header says. Null also if an earlier release received it. */
      known: string | null;
    };
  }
}
