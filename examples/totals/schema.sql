CREATE TABLE totals (
  customer text PRIMARY KEY,
  orders   bigint NOT NULL,
  total    numeric(12, 2) NOT NULL
);
