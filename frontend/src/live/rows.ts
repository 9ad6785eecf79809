// The rows of live frames, and the data of each topic. Times in epoch milliseconds; null is "not known", never zero.
// `npm run types` generates all of them from api_schema/live.openapi.json, which Python writes from the types of
// core/protocol/live_rows.py.
export type * from "./live.gen";
